"""A table for GitHub."""

from __future__ import annotations

from exported_rows import BARE, FAILED, FULL, ODD, ROWS, SLOWER, named, text


def test_a_line_per_case_and_what_is_missing_said_below() -> None:
    numbers = "120 µs | 110 – 130 µs | 250 ms | 2.00 MiB | 2.00 MiB | +20 % (+10 to +30 %) | slower, confirmed"
    expected = f"""\
| case | median | 95 % interval | compile | peak memory | planned peak | change | verdict |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |
| `fft[n=256, dtype=f32] #new` | {numbers} |
| `sum` | 2.00 µs |  |  |  |  |  |  |
| `bad` | timeout |  |  |  |  |  |  |

times by wall · change against v1

- **bad**: it ended with timeout in compile: over 3 s
"""

    assert text("markdown", ROWS, (SLOWER,)) == expected


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    assert text("markdown", (BARE,)).startswith("| case | median |\n| --- | ---: |\n| `sum` | 2.00 µs |\n")


def test_no_text_breaks_the_table_or_calls_anyone() -> None:
    table = text("markdown", (named(ODD), named("@octocat [x](http://y) <script>|")))

    lines = table.splitlines()[2:4]
    assert [line.count("|") for line in lines] == [4, 4]
    assert not set("@[]<`") & set(table.split("times by")[0].replace("---", ""))


def test_where_it_was_measured_is_said() -> None:
    assert "cpu · AMD EPYC 9654 · jax 0.10.2 · commit 01234567+ · times by wall" in text("markdown", (FULL,))
    assert "timeout" in text("markdown", (FAILED,))
