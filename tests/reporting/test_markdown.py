"""Documents as GitHub's Markdown: each kind of block, and that no text formats anything."""

from __future__ import annotations

import pytest

from benchax.model import Remark
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    TableColumn,
    TextRow,
    list_lines,
    tabulate,
)
from benchax.reporting.markdown import escape, render


def text(*blocks: Block) -> str:
    return render(Document(blocks))


def test_headings_sentences_and_lists() -> None:
    listed = list_lines(["one", "two"])

    assert text(Heading("f", 1, ("cpu", "jax 0.10.2")), Heading("why", aside="a.py:3"), Paragraph("a\nb"), *listed) == (
        "# f\n\ncpu  \njax 0.10.2\n\n## why a.py&#58;3\n\na  \nb\n\n- one\n- two\n"
    )


def test_numbers_of_a_table_end_at_the_right_and_names_are_code() -> None:
    table = tabulate(
        (TableColumn("case", "names"), "wall", TableColumn("why", "words")), [("f[n=8]", "1 s", "")], note="n"
    )

    assert text(table) == "| case | wall | why |\n| --- | ---: | --- |\n| `f[n=8]` | 1 s |  |\n\nn\n"


def test_facts_and_remarks_are_lists() -> None:
    rows = (TextRow("compile", "250 ms", "missed\nthe cache"), TextRow("", "and more"))

    assert text(Facts((Section("once", rows),)), Remarks((Remark("x", "warning", "noisy"),))) == (
        "**once**\n\n- **compile**: 250 ms, missed the cache\n- and more\n\n- ! noisy\n"
    )


def test_a_program_stands_in_a_fence_that_it_cannot_close() -> None:
    assert text(Code("hlo", "a ```` b\n  c", "HLO")) == "**HLO**\n\n`````hlo\na ```` b\n  c\n`````\n"
    assert text(Code("diff", "+a")) == "```diff\n+a\n```\n"


def test_a_chart_is_a_line_of_bars() -> None:
    assert text(Sparkline((1.0, 2.0), "1 to 2")) == "▁█ 1 to 2\n"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("*a* _b_ `c`", "&#42;a&#42; &#95;b&#95; &#96;c&#96;"),
        ("<b>", "&#60;b&#62;"),
        ("- a", "&#45; a"),
        ("---", "&#45;--"),
        ("-50 %", "-50 %"),
        ("1. a", "1&#46; a"),
        ("1.00 s", "1.00 s"),
        ("@me #1 http://x", "&#64;me &#35;1 http&#58;//x"),
        ("a\n\tb\x00", "a b&#92;x00"),
    ],
)
def test_a_text_formats_nothing(written: str, expected: str) -> None:
    assert escape(written) == expected
