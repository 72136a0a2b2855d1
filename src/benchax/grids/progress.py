"""Shows on a terminal how far a grid is: a bar, the current cell and its step, the time left. Elsewhere nothing.

Nothing is drawn by a thread of its own: a bar that redraws itself would disturb what is measured. It is redrawn before
a cell is sent and before it is compiled, so that a cell which then hangs is the one that is shown; at other steps at
most ten times a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from benchax.grids.running import GridStep
from benchax.units import seconds

REDRAW_S = 0.1
SHOWN_AS = {"start": "trace", "compile": "compile, run"}
"""The steps that are always drawn, as what may be going on until the next drawing."""
LONGEST_LABEL = 40


class Bar:
    """A context manager; `show` is the progress callback of a run. Draws nothing where stderr is not a terminal.

    Args:
        clock: seconds; for tests.
    """

    def __init__(self, is_on: bool | None = None, clock: Callable[[], float] = monotonic) -> None:
        self.is_on = sys.stderr.isatty() if is_on is None else is_on
        self.clock = clock
        self.drawn = -REDRAW_S
        self.bar: Any = None

    def __enter__(self) -> Bar:
        if self.is_on:
            from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
            from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

            # Without markup: f[n=4] would lose its brackets.
            label = TextColumn("{task.fields[label]}", markup=False)
            columns = (label, BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
            self.bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=1, label="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, step: GridStep) -> None:
        now = self.clock()
        if self.bar is None or (now - self.drawn < REDRAW_S and step.stage not in SHOWN_AS):
            return
        self.drawn = now
        label = f"{step.done + 1}/{step.total} {truncate(step.cell)}"
        self.bar.update(self.task, completed=step.done, total=step.total, description=describe_step(step), label=label)
        self.bar.refresh()


def describe_step(step: GridStep) -> str:
    """The step, and the time left where it can be told."""
    left = f", about {round_seconds(step.left_s)} left" if step.left_s is not None else ""
    return f"{SHOWN_AS.get(step.stage, step.stage)}{left}"


def round_seconds(value_s: float) -> str:
    """12 s; 3 min: a guess shows no more digits than it has."""
    return f"{value_s / 60:.0f} min" if value_s >= 100 else f"{value_s:.0f} s" if value_s >= 1 else seconds(1.0, 1)


def truncate(label: str) -> str:
    flat = " ".join(label.split())
    return flat if len(flat) <= LONGEST_LABEL else flat[: LONGEST_LABEL - 1] + "…"
