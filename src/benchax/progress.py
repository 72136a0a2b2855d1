"""Progress reporting: one event type and one display.

    with show_progress(progress) as report:
        report(ProgressEvent("matmul[n=128]", "compile", done=3.2, total=12))

All measuring functions take the same `progress=`. It is a function of events, True (shows them), False (does not), or
None. None shows events at a terminal if the work takes longer than two seconds.

No separate thread draws: a bar that redraws itself would disturb the measurement. The bar is redrawn when an event
comes, and events come only between samples.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

from benchax.errors import UsageError
from benchax.printable import show_controls, truncate
from benchax.units import seconds

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

PATIENCE_S = 2.0
"""Work that ends within this time needs no display."""
REDRAW_S = 0.1
LONGEST_LABEL = 40
BAR_WIDTH = 24

# Where in a case's work each stage begins, roughly; only bars use it.
_BEGINS = {
    "inputs": 0.0, "trace": 0.05, "lower": 0.1, "compile": 0.15, "artifacts": 0.23, "first run": 0.25, "verify": 0.27,
    "transfer": 0.3, "warm-up": 0.35, "dispatch": 0.4, "in_graph": 0.42, "device": 0.42, "wall": 0.58,
    "pipelined": 0.74, "loop": 0.9, "memory": 0.95, "processes": 0.97,
}  # fmt: skip
_SAMPLING = 0.16
_NEARLY_DONE = 0.999


@dataclass(frozen=True)
class ProgressEvent:
    """Names the step that begins now, and the progress of the whole work.

    Example:
        >>> events = []
        >>> _ = benchax.bench(abs, "f32[8]", stages="build", store="off", progress=events.append)
        >>> events[0].item, events[0].total
        ('abs', 1)
    """

    item: str
    """In words: a case, a cell, a rule, a process; or a whole sentence."""
    doing: str = ""
    """Which part of it: a stage, a timer."""
    done: float = 0.0
    """The finished part of `total`. A fraction counts the finished part of an item."""
    total: int = 0
    """0 if the number of items is not known."""
    left_s: float | None = None
    """An estimate; None if there is no estimate."""
    is_most: bool = False
    """Is `left_s` the most that it can take?"""
    is_lasting: bool = False
    """Is `item` a sentence that stays on the screen, such as that a file cannot be imported?"""
    ended: str = ""
    """A line about a case that has ended. It stays above the progress bar."""

    @property
    def label(self) -> str:
        """3/12 matmul[n=128]"""
        return f"{int(self.done) + 1}/{self.total} {self.item}" if self.total else self.item


Listener = Callable[[ProgressEvent], None]
Progress = Listener | bool | None


def quiet(event: ProgressEvent) -> None:
    """Shows nothing."""


def check_progress(progress: Progress) -> Progress:
    """Returns `progress` if it is valid. Raises `UsageError` otherwise."""
    if callable(progress) or progress is None or isinstance(progress, bool):
        return progress
    raise UsageError(f"invalid progress={progress!r}", "a function of a ProgressEvent, True, False or None")


@contextmanager
def show_progress(
    progress: Progress,
    *,
    has_bar: bool = True,
    results: Callable[[], Sequence[str]] = tuple,
    clock: Callable[[], float] = monotonic,
) -> Generator[Listener, None, None]:
    """Yields the function that receives each event.

    Args:
        progress: see the head of this module. True without a terminal on stderr writes a line for each item.
        has_bar: False if results are written to stdout at the same time. Progress is then written as lines, since rich
            would send both to stderr.
        results: the lines of finished items. They appear above a bar until it disappears; only the newest are shown, as
            many as fit.
        clock: seconds; for tests.

    Raises:
        UsageError: `progress` is none of these.
    """
    check_progress(progress)
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if callable(progress):
        yield progress
    elif progress is False or (progress is None and not is_terminal):
        yield quiet
    elif is_terminal and has_bar:
        with Bar(0.0 if progress else PATIENCE_S, clock, results) as bar:
            yield bar.show
    else:
        yield Lines().show


def follow_stages(report: Listener, item: str, done: int = 0, total: int = 1) -> Callable[[str, float], None]:
    """Turns the engine's reports of one case into events: the stage, and the finished share of that stage."""

    reached = 0.0

    def progress(stage: str, share: float) -> None:
        nonlocal reached
        # Some stages occur twice, for example if there is a second program. A bar that goes back would look like lost
        # work. The end of the last stage is still part of this item: a share of 1 would name the next item.
        reached = max(reached, min(_BEGINS.get(stage, 0.0) + _SAMPLING * share, _NEARLY_DONE))
        report(ProgressEvent(item, stage, done + reached, total))

    return progress


class Lines:
    """Writes a line on stderr for each item if there is no terminal."""

    def __init__(self) -> None:
        self.last = ""

    def show(self, event: ProgressEvent) -> None:
        text = event.ended or (event.item if event.is_lasting else " ".join(event.label.split()))
        if event.ended or event.is_lasting or event.label != self.last:
            self.last = event.label
            sys.stderr.write(f"{show_controls(text)}\n")
            sys.stderr.flush()


class Bar:
    """Redraws one line of a terminal: the current item, the progress of the whole, and the time left."""

    def __init__(
        self,
        patience_s: float,
        clock: Callable[[], float] = monotonic,
        results: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self.patience_s, self.clock, self.results = patience_s, clock, results
        self.live: Live | None = None
        self.last = ("", "")
        self.ended: list[str] = []
        self.drawn_s = 0.0

    def __enter__(self) -> Bar:
        self.begun_s = self.clock()
        if not self.patience_s:
            # Start now, not at the first event: rich replaces sys.stdout, and so may a caller. Both restore what they
            # found, so rich must come first.
            self.live = self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def show(self, event: ProgressEvent) -> None:
        now, what = self.clock(), (event.item, event.doing)
        is_new, self.last = what != self.last, what
        self.ended += [event.ended] if event.ended else []
        # Always draw a beginning: if it hangs, the display names it. The first drawing imports rich, which must not
        # happen between two samples of a timer.
        is_due = is_new or (self.live is not None and now - self.drawn_s >= REDRAW_S)
        if not is_due or now - self.begun_s < self.patience_s:
            return
        live = self.live = self.live or self._start()
        self.drawn_s = now
        if event.is_lasting:
            live.console.print(show_controls(event.item), markup=False, highlight=False)
        else:
            # The bar needs one line and a margin. Lines that have scrolled away return with the last table.
            above = [*self.ended, *self.results()][-max(1, live.console.height - 3) :]
            live.update(draw(with_time_left(event, now - self.begun_s), above), refresh=True)

    def _start(self) -> Live:
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.live import Live  # noqa: PLC0415

        # Text that the user's functions print to a terminal appears above the bar. A file that they print to is not
        # affected.
        to_terminal = sys.stdout.isatty()
        live = Live(console=Console(stderr=True), auto_refresh=False, transient=True, redirect_stdout=to_terminal)
        live.start()
        return live


def draw(event: ProgressEvent, above: Sequence[str]) -> Group:
    """The lines above, and the event's own line. Texts are no markup: f[n=4] would lose its brackets."""
    from rich.console import Group  # noqa: PLC0415 - only a terminal needs it
    from rich.progress_bar import ProgressBar  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    cells: list[Any] = [Text(truncate(show_controls(" ".join(event.label.split())), LONGEST_LABEL), no_wrap=True)]
    if event.total:
        cells.append(ProgressBar(event.total, event.done, width=BAR_WIDTH))
    cells.append(Text(describe_rest(event), no_wrap=True, overflow="ellipsis"))
    line = Table.grid(padding=(0, 1))
    line.add_row(*cells)
    return Group(*(Text(show_controls(each), no_wrap=True, overflow="ellipsis") for each in above), line)


def with_time_left(event: ProgressEvent, elapsed_s: float) -> ProgressEvent:
    """Returns `event` with an estimate of the time left, from the time of the first items, if it has none yet."""
    if event.left_s is not None or not event.total or event.done < 1 or elapsed_s < PATIENCE_S:
        return event
    return replace(event, left_s=elapsed_s / event.done * max(0.0, event.total - event.done))


def describe_rest(event: ProgressEvent) -> str:
    """Describes the finished part, and the time left if it is known."""
    how = "at most" if event.is_most else "about"
    left = f", {how} {round_seconds(event.left_s)} left" if event.left_s is not None else ""
    return f"{' '.join(event.doing.split())}{left}"


def round_seconds(value_s: float) -> str:
    """12 s; 3 min: a guess shows no more digits than it has."""
    return f"{value_s / 60:.0f} min" if value_s >= 100 else f"{value_s:.0f} s" if value_s >= 1 else seconds(1.0, 1)
