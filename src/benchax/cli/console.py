"""Writes results to stdout and the rest to stderr. Also collects the cases for commands."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TextIO, TypeVar

from benchax.printable import show_controls
from benchax.progress import Listener, show_progress

if TYPE_CHECKING:
    from rich.console import Console

    from benchax.case import Case
    from benchax.model import Measurement
    from benchax.reporting.document import Document

T = TypeVar("T")


def show(document: Document, *, is_aside: bool = False) -> None:
    """Prints a document as wide as the terminal, or as COLUMNS says. In a pipe, it breaks no row of a table.

    Args:
        is_aside: print to stderr, because stdout belongs to the user's program.
    """
    from rich.console import Console

    from benchax.reporting import terminal

    console = Console(highlight=False, stderr=is_aside)
    if console.is_terminal:
        # Not cropped: a table folds as its columns allow, and what is wider still must not lose its end.
        console.print(terminal.render(document), crop=False)
    else:
        print(terminal.to_text(document, _width(console)), file=console.file, flush=is_aside)


def width_aside() -> int | None:
    """Returns the width of the terminal at stderr, for texts of another process. None if it is not a terminal."""
    from rich.console import Console

    return _width(Console(stderr=True))


def _width(console: Console) -> int | None:
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def show_list(lines: Sequence[Sequence[str]]) -> None:
    """Prints a table of words without a head: each line has a name, then its description."""
    from benchax.reporting.document import Document, TableColumn, tabulate

    # Only the last column may fold; what tells the lines apart stands in the first ones.
    widths = [*(None for _ in lines[0][:-1]), 20]
    show(Document((tabulate([TableColumn("", "words", width) for width in widths], lines),)))


def line(text: str) -> None:
    """Prints a line on stdout. It avoids typer.echo, which sends UTF-8 to terminals that know only ASCII."""
    print(show_controls(text))


def print_content(text: str) -> None:
    """Prints the unchanged content of a file. On a terminal, it spells out controls that the terminal would obey."""
    print(show_controls(text) if sys.stdout.isatty() else text)


def note(text: str) -> None:
    """Prints a line on stderr. On a terminal, it breaks the line between words."""
    print(_fold(show_controls(text)), file=sys.stderr, flush=True)


def _fold(text: str) -> str:
    width = shutil.get_terminal_size().columns
    if not sys.stderr.isatty() or all(len(line) <= width for line in text.split("\n")):
        return text
    from benchax.reporting.terminal import fold_text  # rich takes its time to import

    return fold_text(text, width)


@contextmanager
def while_read() -> Iterator[None]:
    """Prints until the reader is gone (`2>&1 | head`). After that it is silent, and raises no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout, sys.stderr)


def silence(*streams: TextIO) -> None:
    """Stops Python from writing there again at its end: the reader is gone (benchax list | head), or a disk is full."""
    # On the descriptors: what is still in a buffer is flushed when Python ends, and would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def print_json(rows: Sequence[Measurement]) -> None:
    """Prints one document per line, in the form that `benchax.load` reads."""
    from benchax import codec

    for row in rows:
        print(codec.encode(row), flush=True)  # whoever reads may want it before the next case is done


def printing_to_stderr(work: Callable[[], T]) -> T:
    """Runs the user's code. Its output goes to stderr, because stdout is for results."""
    with redirect_stdout(sys.stderr):
        return work()


def with_progress(work: Callable[[Listener], T], progress: bool | None = True) -> T:
    """Runs work that reports its progress, in a separate display: finished work is shown before the next begins."""
    with show_progress(progress) as report:
        return printing_to_stderr(lambda: work(report))


def collect_cases(what: Sequence[str], pattern: str, params: Sequence[str]) -> tuple[list[Case], int]:
    """Returns (cases, exit code). Reports broken files, with the exit code 2, and goes on with the others."""
    from benchax.discovery import collect

    cases, broken = printing_to_stderr(lambda: collect(what, pattern, params))
    for each in broken:
        note(f"error: {each.message}\n{each.traceback}")
    return cases, 2 if broken else 0
