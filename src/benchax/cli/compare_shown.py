"""What `benchax compare` and `benchax rank` show alike: how far they are, on stderr, and a figure of the ratios."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.comparing.ranking import Comparisons
    from benchax.paired_runs.session import SessionStep


class ComparisonProgress:
    """Progress on stderr: one line that is replaced on a terminal, a line per process elsewhere."""

    def __init__(self) -> None:
        self.status: Any = None
        self.last = -1

    def __enter__(self) -> ComparisonProgress:
        import sys

        if sys.stderr.isatty():
            from rich.console import Console

            self.status = Console(stderr=True).status("")
            self.status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.status is not None:
            self.status.stop()

    def say(self, text: str) -> None:
        from benchax.cli.console import note

        if self.status is not None:
            self._update(text)
        else:
            note(text)

    def __call__(self, step: SessionStep) -> None:
        if step.is_lasting:
            from benchax.cli.console import note

            note(step.stage)
            return
        if not step.total:  # something is prepared
            self.say(step.stage)
            return
        text = f"process {step.process + 1}: {step.undecided} of {step.total} undecided"
        if self.status is not None:
            self._update(f"{text} · {' '.join(step.case.split())[:40]} · {step.stage}")
        elif step.process != self.last:
            self.last = step.process
            self.say(text)

    def _update(self, text: str) -> None:
        from rich.text import Text

        self.status.update(Text(text))  # brackets of a label are no markup


def check_drawable(plot: Path | None) -> None:
    """A slip in a path is told before minutes of measuring, not after them."""
    if plot is None:
        return
    if plot.suffix not in (".png", ".svg", ".pdf") or plot.is_dir() or not plot.absolute().parent.is_dir():
        raise UsageError(f"cannot draw to {str(plot)!r}", "a file in a folder that exists: .png, .svg or .pdf")
    from benchax.errors import require

    require("matplotlib", extra="plot", doing="--plot")


def draw(found: Comparisons, plot: Path) -> None:
    from benchax.cli.console import note
    from benchax.reporting.comparison_figure import figure

    if not found.of("run"):
        note("nothing was drawn: no run times were compared")
        return
    figure(found).savefig(plot)
    note(f"figure drawn to {plot}")
