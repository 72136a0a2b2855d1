"""How the table is fitted to a terminal: nothing is cut, and nothing is wider but names."""

from __future__ import annotations

from typing import Any

import pytest
from csv_rows_by_hand import a_record, a_row

from pytest_jax_bench import layout, table

WIDE = "tests/test_a_long_folder/test_file.py::test_of_something_with_a_long_name[float32-1024]"


def records() -> list[dict]:
    old = a_row(jit=1.08, eager_median_ms=3.0)
    new = a_row(jit=1.3, eager_median_ms=829.0, commit_run=1) | {"eager_low_ms": 1.0, "eager_high_ms": 5627.0}
    return [a_record(new, old), a_record(a_row(), None, nodeid=WIDE), a_record(a_row(status="error", message="run: x"))]


@pytest.mark.parametrize("width", [80, 100, 120, 300])
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(width: int) -> None:
    found = table.tabulate_records(records())

    lines = layout.fit(found, width)

    assert [line for line in lines if len(line) > width and line != WIDE] == []
    said = "".join("".join(lines).split())
    # Folded cells are beside one another: each word of each cell is there.
    words = [word for row in found.lines for text in row for word in text.split()]
    assert [word for word in words if word not in said] == []


@pytest.mark.parametrize("width", [80, 60, 41])
def test_names_are_above_their_row_if_it_does_not_fit_and_cells_fold_between_their_parts(
    width: int, snapshot: Any
) -> None:
    found = table.tabulate_records([a_record(a_row(jit=1.3, commit_run=1), a_row()), a_record(a_row())])

    assert "\n".join(layout.fit(found, width)) == snapshot


def test_colours_do_not_move_columns() -> None:
    found = table.tabulate_records([a_record(a_row(jit=10.0, commit_run=1), a_row())])

    plain, coloured = (
        layout.fit(found, 200, markup)
        for markup in (lambda text, style: text, lambda text, style: f"<{style}>{text}</>" if style == "bad" else text)
    )

    assert "<bad>1.00 -> 10.0 ms slower</>" in coloured[1]
    assert coloured[1].replace("<bad>", "").replace("</>", "") == plain[1]
