"""Time limits of a grid: how long each step of a cell may take, and how the total is shared between cells.

The limits are wall-clock seconds; the pool (`workers/pool.py`) keeps them, with SIGKILL. Each step has a budget of
its own: time to compile is never taken from the time to run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from benchax.model import Failure
from benchax.units import read_duration, seconds

COMPILE_LEAST_S = 60.0
"""The shortest limit for compiling, if the user gives no limit."""
LEAST_TURN_S = 0.02
"""With less than this left in total a cell does not begin: it could not even be sent."""
_WHERE = re.compile(r"\(at .*\)$")
CALLS = ("trace", "run", "check")
"""The steps in which the user's function itself runs in Python or on the device; the others compile or copy."""


@dataclass(frozen=True)
class Limits:
    """`None`: no limit."""

    call_s: float | None
    """Tracing, and every single call."""
    compile_s: float | None
    """Lowering, compiling, making inputs (which compiles too), sending and fetching."""
    total_s: float | None
    """The whole grid."""

    def of(self, stage: str) -> float | None:
        """Seconds that `stage` of a cell may take."""
        return self.call_s if stage in CALLS else self.compile_s


def limits(timeout_s: Any, compile_timeout_s: Any, total_timeout_s: Any) -> Limits:
    """The limits in force. Without a limit for compiling, it gets as long as a call, and at least a minute.

    Raises:
        UsageError: a limit is not a time above 0.
    """
    call_s = read_duration("timeout_s", timeout_s)
    compile_s = read_duration("compile_timeout_s", compile_timeout_s)
    if compile_s is None and call_s is not None:
        compile_s = max(COMPILE_LEAST_S, call_s)
    return Limits(call_s, compile_s, read_duration("total_timeout_s", total_timeout_s))


def allowance(remaining_s: float, cells_left: int, finished_s: Sequence[float]) -> float:
    """Seconds that the next cell can use of the remaining total.

    It is at least the equal share. It is more if the others need less than their shares. Suppose that all others take
    as long as a usual cell (the median of the finished ones): the cell gets half of the rest. The half makes sure that
    each of many cells that never end gets some time: the first a half, the next a quarter, and at last the equal share.

    Args:
        remaining_s: of the total, before this cell.
        cells_left: this one and those after it.
        finished_s: how long each finished cell took.
    """
    usual_s = median(finished_s) if finished_s else 0.0
    slack_s = remaining_s - usual_s * (cells_left - 1)
    return max(remaining_s / cells_left, slack_s / 2)


def of_the_total(failure: Failure, total_s: float, share_s: float) -> Failure:
    """A cell that was stopped because its share was over, and not for the limit of a step, says so."""
    where = _WHERE.search(failure.message)
    said = f"stopped after {seconds(share_s)}, its share of the {seconds(total_s)} for the whole grid"
    advice = "Give the grid more time, fewer cells, or a smaller timeout_s."
    return replace(failure, message=said + (f" {where[0]}" if where else ""), advice=advice)
