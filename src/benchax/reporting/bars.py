"""Values as a line of bars, which a terminal, a pipe and a table's cell can hold: ▁▂▅┊█.

On a scale of logarithms, which is never so fine that noise looks like mountains.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

BARS = "▁▂▃▄▅▆▇█"
BREAK, MISSING = "┊", "·"
LEAST_SPAN = 1.1
"""The greatest bar stands for this many times the least, or more."""


def draw_bars(values: Sequence[float | None], breaks: Collection[int] = ()) -> str:
    """A bar for each; ┊ before the places of `breaks`, · where there is no value."""
    bars = [
        MISSING if height is None else BARS[min(len(BARS) - 1, int(height * len(BARS)))] for height in heights(values)
    ]
    return "".join((BREAK if i in breaks and i > 0 else "") + bar for i, bar in enumerate(bars))


def heights(values: Sequence[float | None]) -> list[float | None]:
    """From 0, the least, to 1, the greatest; what is no positive number stands at the bottom."""
    logs = [math.log(v) for v in values if v is not None and v > 0] or [0.0]
    least, greatest = min(logs), max(logs)
    missing = max(0.0, math.log(LEAST_SPAN) - (greatest - least)) / 2
    low, span = least - missing, greatest - least + 2 * missing
    return [None if v is None else (math.log(v) - low) / span if v > 0 else 0.0 for v in values]
