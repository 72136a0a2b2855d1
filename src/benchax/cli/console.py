"""Where the command line writes: results on stdout, the rest on stderr; and the cases that commands are about."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, TypeVar

from benchax.printable import show_controls

if TYPE_CHECKING:
    from rich.console import Console

    from benchax.case import Case
    from benchax.discovery import Broken
    from benchax.model import Measurement
    from benchax.reporting.document import Document

T = TypeVar("T")


def show(document: Document, *, is_aside: bool = False) -> None:
    """Renders as wide as the terminal, or as COLUMNS says; in pipes no row of a table is broken.

    Args:
        is_aside: on stderr, where stdout belongs to a program of the user's.
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
    """Tells the columns of the terminal at stderr, for texts that another process renders; None where there is none."""
    from rich.console import Console

    return _width(Console(stderr=True))


def _width(console: Console) -> int | None:
    return console.width if console.is_terminal or "COLUMNS" in os.environ else None


def show_list(lines: Sequence[Sequence[str]]) -> None:
    """A table of words without a head: each thing by its name, then what is to be said of it."""
    from benchax.reporting.document import Document, TableColumn, tabulate

    # Only the last column may fold; what tells the lines apart stands in the first ones.
    widths = [*(None for _ in lines[0][:-1]), 20]
    show(Document((tabulate([TableColumn("", "words", width) for width in widths], lines),)))


def line(text: str) -> None:
    """A line on stdout. Not typer.echo, which sends UTF-8 to terminals that know ASCII only."""
    print(show_controls(text))


def print_content(text: str) -> None:
    """What would stand in a file, unchanged; a terminal gets controls spelt out, which it would obey."""
    print(show_controls(text) if sys.stdout.isatty() else text)


def note(text: str) -> None:
    """A line on stderr; a terminal gets it broken between words."""
    print(_fold(show_controls(text)), file=sys.stderr, flush=True)


def _fold(text: str) -> str:
    width = shutil.get_terminal_size().columns
    if not sys.stderr.isatty() or all(len(line) <= width for line in text.split("\n")):
        return text
    from benchax.reporting.folding import fold_text  # rich takes its time to import

    return fold_text(text, width)


@contextmanager
def while_read() -> Iterator[None]:
    """Prints as far as somebody reads it; silent from where the reader is gone on (`2>&1 | head`), and no error."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # On the descriptors: what is still in a buffer is flushed when Python ends, and would fail again.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            os.dup2(nowhere, stream.fileno())


def print_json(rows: Sequence[Measurement]) -> None:
    """One document per line, as `benchax.load` reads them."""
    from benchax import codec

    for row in rows:
        print(codec.encode(row), flush=True)  # whoever reads may want it before the next case is done


def printing_to_stderr(work: Callable[[], T]) -> T:
    """Runs the user's code: what it prints goes to stderr, since stdout is for results."""
    with redirect_stdout(sys.stderr):
        return work()


def collect_cases(what: Sequence[str], pattern: str, params: Sequence[str]) -> tuple[list[Case], int]:
    """(cases, exit code): 2 where a file is broken, which is told; the others go on."""
    from benchax.discovery import collect

    cases, broken = printing_to_stderr(lambda: collect(what, pattern, params))
    show_broken(broken)
    return cases, 2 if broken else 0


def show_broken(broken: Sequence[Broken]) -> None:
    for each in broken:
        note(f"error: {each.failure.message}\n{each.failure.traceback}")
