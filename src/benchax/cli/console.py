"""Where the command line writes: results on stdout, the rest on stderr; and the progress of a run."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from benchax.model import Measurement

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.reporting.document import Document

# Where in a case's work each stage begins, roughly; only the progress bar uses it.
_BEGINS = {
    "inputs": 0.0, "trace": 0.05, "lower": 0.1, "compile": 0.15, "artifacts": 0.23, "first run": 0.25, "verify": 0.27,
    "transfer": 0.3, "warm-up": 0.35, "dispatch": 0.4, "in_graph": 0.42, "device": 0.42, "wall": 0.58,
    "pipelined": 0.74, "loop": 0.9, "memory": 0.95, "processes": 0.97,
}  # fmt: skip
_SAMPLING = 0.16


def show(document: Document) -> None:
    """Renders on stdout, as wide as the terminal, or as COLUMNS says; in pipes no row of a table is broken."""
    from rich.console import Console

    from benchax.reporting import terminal

    console = Console(highlight=False)
    if console.is_terminal:
        console.print(terminal.render(document), crop=False)
    else:
        print(terminal.to_text(document, console.width if "COLUMNS" in os.environ else None))


def line(text: str) -> None:
    """A line on stdout. Not typer.echo, which sends UTF-8 to terminals that know ASCII only."""
    print(text)


def note(text: str) -> None:
    """A line on stderr."""
    print(text, file=sys.stderr, flush=True)


class CaseReporter:
    """Shows on stderr which case is measured: a bar on a terminal, a line per case elsewhere.

    Nothing is drawn by a thread of its own: a bar that redraws itself would disturb what is measured. It is redrawn
    when the engine reports, which it does between samples only.

    Args:
        has_bar: False where something is written to stdout meanwhile: a bar of rich takes that to its own stream.
    """

    def __init__(self, total: int, has_bar: bool = True) -> None:
        self.total = total
        self.has_bar = has_bar and sys.stderr.isatty()
        self.begun = 0
        self.bar: Any = None

    def __enter__(self) -> CaseReporter:
        if self.has_bar:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (
                TextColumn("{task.fields[label]}", markup=False),
                BarColumn(bar_width=24),
                TextColumn("{task.description}"),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), auto_refresh=False, transient=True)
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total, label="")
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def case(self, case: Case) -> Any:
        """The engine's progress callback for the next case."""
        done, self.begun = self.begun, self.begun + 1
        label = f"{self.begun}/{self.total} {_truncate(case.id.label)}"
        if self.bar is None:
            note(f"measuring {label}")
            return lambda stage, share: None

        def progress(stage: str, share: float) -> None:
            part = _BEGINS.get(stage, 0.0) + _SAMPLING * share
            self.bar.update(self.task, completed=done + part, description=stage, label=label)
            self.bar.refresh()

        return progress


def _truncate(label: str) -> str:
    one_line = " ".join(label.split())
    return one_line if len(one_line) <= 40 else one_line[:39] + "…"


def print_json(rows: list[Measurement]) -> None:
    """One document per line, as `benchax.load` reads them."""
    from benchax import codec

    for row in rows:
        print(codec.encode(row), flush=True)  # whoever reads may want it before the next case is done
