"""A heat map of times: colour by the logarithm, the number in each square; what was not measured is hatched and named.

Knows nothing of grids: squares come with a time in seconds or a status.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchax.reporting.chart import Axis, AxisTick, Cells, Chart
from benchax.reporting.document import Style

STYLES: dict[str, Style] = {
    "timeout": "warning", "crashed": "bad", "error": "bad", "out_of_memory": "bad", "wrong_shape": "info",
}  # fmt: skip


@dataclass(frozen=True)
class Square:
    value_s: float | None
    """None: see `status`."""
    status: str = "ok"


def chart(
    rows: Sequence[str],
    columns: Sequence[str],
    squares: Sequence[Sequence[Square]],
    *,
    x_title: str = "",
    title: str = "",
) -> Chart:
    """One line of squares per row."""
    cells = Cells(
        tuple(tuple(square.value_s for square in line) for line in squares),
        tuple(tuple(_word(square) for square in line) for line in squares),
        tuple(tuple(STYLES.get(square.status, "faint") for square in line) for line in squares),
    )
    return Chart(_name(columns, x_title), _name(rows), (cells,), title)


def _word(square: Square) -> str:
    return "" if square.value_s is not None else square.status.replace("_", " ")


def _name(names: Sequence[str], title: str = "") -> Axis:
    return Axis(title, are_names=True, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names)))
