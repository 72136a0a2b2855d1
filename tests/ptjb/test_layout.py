"""How the table is fitted to a terminal: nothing is cut, nothing is torn, and nothing is wider but names."""

from __future__ import annotations

import re
from typing import Any

import pytest
from csv_rows_by_hand import a_record, a_row

from pytest_jax_bench import table

WIDE = "tests/test_a_long_folder/test_file.py::test_of_something_with_a_long_name[float32-1024]"
USUAL = "tests/test_fft.py::test_fft[128]"


def records() -> list[dict]:
    old = a_row(jit=1.08, eager_median_ms=3.0)
    new = a_row(jit=1.3, eager_median_ms=829.0, commit_run=1) | {"eager_low_ms": 1.0, "eager_high_ms": 5627.0}
    return [a_record(new, old), a_record(a_row(), None, nodeid=WIDE), a_record(a_row(status="error", message="run: x"))]


def usual(count: int) -> Any:
    """Rows with jitted and eager times, as a second session has them."""
    times = {"eager_median_ms": 11.4, "eager_low_ms": 11.1, "eager_high_ms": 11.8, "compile_ms": 226.0}
    new = a_row(jit=149.0, commit_run=12, **times) | {"jit_low_ms": 141.0, "jit_high_ms": 152.0}
    return table.tabulate_records([a_record(new, a_row(jit=86.4, **times), nodeid=USUAL)] * count)


@pytest.mark.parametrize("width", [80, 100, 120, 300])
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(width: int) -> None:
    found = table.tabulate_records(records())

    lines = table.fit(found, width)

    assert [line for line in lines if len(line) > width and line != WIDE] == []
    cells = [re.sub(r" (->|±) ", r"\1", text) for row in found.rows for text, _ in row if text != "base"]
    assert [text for text in cells if text not in re.sub(r" (->|±) ", r"\1", "\n".join(lines))] == []


@pytest.mark.parametrize("width", [100, 80, 41])
def test_values_stay_whole(width: int, snapshot: Any) -> None:
    assert "\n".join(table.fit(usual(2), width)) == snapshot


def test_a_tag_that_says_something_is_never_left_out() -> None:
    found = table.tabulate_records([a_record(a_row(tag="other")), a_record(a_row())])

    assert "other" in "\n".join(table.fit(found, 41))


def test_colours_do_not_move_columns() -> None:
    found = table.tabulate_records([a_record(a_row(jit=10.0, commit_run=1), a_row())])

    plain, coloured = (
        table.fit(found, 200, markup)
        for markup in (lambda text, style: text, lambda text, style: f"<{style}>{text}</>" if style == "bad" else text)
    )

    assert "<bad>1.00 -> 10.0 ms slower</>" in coloured[1]
    assert coloured[1].replace("<bad>", "").replace("</>", "") == plain[1]
