"""Options that several commands have, and what commands show: results on stdout, the rest on stderr. Files hold what
the user wants to keep.

It also collects the cases for commands, and says what a program of the user does.
"""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer
from typer.core import TyperCommand

from benchax.errors import UsageError, require
from benchax.options import TABLE, check
from benchax.printable import show_controls
from benchax.progress import Listener, round_seconds, show_progress
from benchax.units import read_duration, seconds
from benchax.whole_files import refuse_unwritable

if TYPE_CHECKING:
    from benchax.case import Case
    from benchax.hooks.command import EndedCommand
    from benchax.renderers import SavedAsPage
    from benchax.reporting.document import Document


T = TypeVar("T")


def show(found: Document | str, *, is_aside: bool = False, is_next: bool = False) -> None:
    """Prints a document as wide as the terminal, or as COLUMNS says. In a pipe, it breaks no row of a table.
    JSON is printed as it is.

    Args:
        is_aside: print to stderr, because stdout belongs to the user's program.
        is_next: an empty line separates it from the document before it.
    """
    if isinstance(found, str):
        print(found, flush=True)  # whoever reads may want it before the next case is done
        return
    if is_next:
        line("")
    from rich.console import Console

    from benchax.reporting import terminal

    console = Console(highlight=False, stderr=is_aside)
    if console.is_terminal:
        # A table folds if its columns allow it, and a wider one must keep its end.
        console.print(terminal.render(found, console.width), soft_wrap=True)
    else:
        width = console.width if "COLUMNS" in os.environ else None
        print(terminal.to_text(found, width), file=console.file, flush=is_aside)


def show_list(lines: Sequence[Sequence[str]]) -> None:
    """Prints a table of words without a head: each line has a name, then its description."""
    from benchax.reporting.document import Document, TableColumn, tabulate

    # Only the last column folds; the first ones identify the line.
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
    # Redirect the descriptors: Python flushes buffered text when it ends, and would fail again.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in streams:
        os.dup2(nowhere, stream.fileno())


def printing_to_stderr(work: Callable[[], T]) -> T:
    """Runs the user's code. Its output goes to stderr, because stdout is for results."""
    with redirect_stdout(sys.stderr):
        return work()


def with_progress(work: Callable[[Listener], T], progress: bool | None = True) -> T:
    """Runs work that reports its progress, in a separate display: finished work is shown before the next begins."""
    with show_progress(progress) as report:
        return printing_to_stderr(lambda: work(report))


def refuse(*rules: tuple[Any, ...]) -> None:
    """Raises `UsageError` for the first rule that is broken.

    Args:
        rules: (is it broken?, what is wrong, what is expected, and perhaps a hint).
    """
    for is_broken, *words in rules:
        if is_broken:
            raise UsageError(*words)


def collect_cases(what: Sequence[str], pattern: str, params: Sequence[str]) -> tuple[list[Case], int]:
    """Returns (cases, exit code). Reports broken files, with the exit code 2, and goes on with the others."""
    from benchax.discovery import collect

    before = Path().stat()
    cases, broken = printing_to_stderr(lambda: collect(what, pattern, params))
    if not os.path.samestat(before, Path().stat()):
        note(f"note: a benchmark file has changed the working folder to {Path.cwd()}: results and files go there")
    for each in broken:
        note(f"error: {each.message}\n{each.traceback}")
    return cases, 2 if broken else 0


# ---- files -----------------------------------------------------------------------------------------------------------
#
# Options check their file when they are read: before an hour of measuring, not after it.


DRAWN = (".png", ".svg", ".pdf")


def check_writable(path: Path | None) -> Path | None:
    """Returns the path. Raises `UsageError` if a file cannot have that name."""
    if path is not None and not _can_be(path):
        raise UsageError(f"cannot write to {str(path)!r}", "a file in a folder that exists")
    return path


def check_drawable(plot: Path | None) -> Path | None:
    """Checks the file of a figure like `check_writable`. Also raises `MissingPackage` without matplotlib."""
    if plot is not None:
        if plot.suffix not in DRAWN or not _can_be(plot):
            raise UsageError(f"cannot draw to {str(plot)!r}", "a file in a folder that exists: .png, .svg or .pdf")
        require("matplotlib", doing="--plot")
    return plot


def _can_be(path: Path) -> bool:
    return path.absolute().parent.is_dir() and not path.is_dir()


def write_figure(plot: Path | None, what: str, draw: Callable[[], Any]) -> None:
    """Saves the figure of matplotlib that `draw` makes, if there is a file for it. Raises `UsageError` with the reason
    of the operating system.
    """
    if plot is not None:
        figure = draw()
        with refuse_unwritable(plot):
            figure.savefig(plot)
        note(f"{what} drawn to {plot}")


def write_page(file: Path | None, result: SavedAsPage) -> None:
    """Writes the page if there is a file for it. Raises `UsageError` with the reason of the operating system."""
    from benchax.reporting.display import documents_of

    write_documents(file, documents_of(result) if file else ())


def write_documents(file: Path | None, documents: Sequence[Document]) -> None:
    """Writes documents as `write_page` does. The first document is the head of the page, and its parts follow."""
    from benchax.reporting.html import save_page

    if file is not None:
        save_page(file, documents)
        note(f"page written to {file}")


# ---- the user's program ----------------------------------------------------------------------------------------------
#
# Messages at a terminal about the user's program: while it runs, and how it ended.
#
# The end of the program is unknown, so there is no remaining time. A message has the elapsed time, what it waits for,
# and the news from the hook inside the program. Messages are rare, because the terminal is the program's. The hook
# writes its news to a folder, with a file for each process.


FIRST_S = 10.0
THEN_TIMES = 3
"""Messages come after 10 s, 30 s, 90 s and so on, because each line interrupts the program's own output."""


class Waiting:
    """Prints a message when there is news, or after a long silence. The caller calls it once a second.

    Args:
        command: the name of the benchax command, such as watch.
        folder: the program's processes write their news there; None if they have no news.
        say: prints a message; tests replace it.
    """

    def __init__(self, command: str, folder: Path | None = None, say: Callable[[str], None] = note) -> None:
        self.command, self.folder, self.say = command, folder, say
        self.due_s = FIRST_S
        self.told: dict[Path, str] = {}

    def __call__(self, elapsed_s: float) -> None:
        files = sorted(self.folder.glob("*.txt")) if self.folder else []
        before, self.told = self.told, {file: file.read_text(encoding="utf-8") for file in files}
        news = [text for file, text in self.told.items() if text and before.get(file) != text]
        if news or elapsed_s >= self.due_s:
            rest = "; ".join(news) or "the report comes when the program ends"
            self.say(f"\nbenchax {self.command}: after {round_seconds(elapsed_s)}: {rest}")
            self.due_s = max(FIRST_S, THEN_TIMES * elapsed_s)


def at_terminal(command: str, folder: Path | None = None) -> Waiting | None:
    """Returns None if stderr is not a terminal, so that these messages do not fill a log."""
    return Waiting(command, folder) if sys.stderr.isatty() else None


def describe_end(command: Sequence[str], ended: EndedCommand) -> str:
    """Returns a text such as: benchax: python train.py ended with 0 after 12.3 s."""
    after = f"after {seconds(ended.elapsed_s)}"
    # A real-time signal has no name.
    known = {each.value: each.name for each in signal.Signals}
    how = f"ended with {ended.exit_code} {after}"
    if ended.is_timed_out:
        how = f"was ended {after}, when its time was up"
    elif ended.signal is not None:
        how = f"was ended by {known.get(ended.signal, f'signal {ended.signal}')} {after}"
    return f"benchax: {shlex.join(command)} {how}"


def tell_end(command: Sequence[str], ended: EndedCommand, remarks: Iterable[str] = ()) -> None:
    """Prints how the program ended, and remarks about it."""
    note(f"\n{describe_end(command, ended)}")
    for remark in (*ended.remarks, *remarks):
        note(f"note: {remark}")


# ---- options ---------------------------------------------------------------------------------------------------------
#
# Options that several commands share. Each has one name, one type, and one help text, as in the library. Options of the
# library come from its table (`benchax.options`). For typer they are texts; the table's readers parse them, so that
# errors use the library's words.


COMMAND_LINE = "the command line"
"""Errors name the source of an option in this way."""

COMMAND = "benchax.command"
"""A context keeps the words after the two dashes under this key."""


class WithCommand(TyperCommand):
    """Keeps the words after `--` apart. click would mix them with the other words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            at = args.index("--")
            ctx.meta[COMMAND] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


What = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH... | MODULE:FUNCTION [INPUT...]]",
        help="Folders and files with benchmarks (bench_*.py; default: this folder), or a function and its inputs: "
        "jax.numpy:sort f32[1000000]. An input is data, such as f32[8,128], key or 3.0, or a static value, such as "
        "axis=0 or 'same'.",
    ),
]
WhatOrCommand = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODULE:FUNCTION [INPUT...] | PATH... | -- COMMAND...]",
        help="A function and its inputs (jax.numpy:sort f32[1000000]), benchmark files (bench_*.py), or, after two "
        "dashes, a command that runs a program: -- python train.py.",
    ),
]
Pattern = Annotated[
    str, typer.Option("--filter", "-k", help="Use only cases whose name contains this (or matches * and ?).")
]
Params = Annotated[
    list[str] | None,
    typer.Option("--param", "-p", metavar="NAME=VALUES", help="Set values of a parameter: -p n=128,256."),
]
NoJit = Annotated[bool, typer.Option("--no-jit", help="Run functions as they are, operation by operation.")]
Resolution = Annotated[
    str | None,
    typer.Option(metavar="SHARE", help='Call changes below this "same": 1% finds +2 %, and takes longer (5%).'),
]
Store = Annotated[str | None, typer.Option(metavar="DIR", help="Folder of the database (default .benchmarks).")]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="Measure on Ray nodes: HOST:PORT, ray://HOST:PORT, or ray, which starts one here (this machine).",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Draw it to FILE: .png, .svg, .pdf.", callback=check_drawable),
]
Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="Write everything, with charts, to one HTML file.", callback=check_writable
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write everything to FILE, as JSON.", callback=check_writable),
]
Reasons = Annotated[
    bool, typer.Option("--verbose", "-v", help="Give the reason for each number that was not measured.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show what is fine or does not apply, and why.")]
MAX_TIME_OF_EACH = "Start no comparison of a function after this time: 30, 500ms, 2min (60)."
MAX_TIME_OF_ALL = "Limit the total time to about this: 15, 500ms, 2min (no limit)."
Given = dict[str, Any]
"""The options that `takes_options` adds, by name; None if the user gave no value."""


def takes_options(*names: str, **sentences: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorates a command: its parameter of type `Given` becomes options with these names, and gets their values.

    Args:
        names: options of the table, with their help and default there.
        sentences: the help by name, where an option has another default or meaning, or is a duration of this command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command, eval_str=True)
        (place,) = (name for name, parameter in signature.parameters.items() if parameter.annotation is Given)
        added = {_parameter_name(name): name for name in (*names, *sentences)}
        parameters, at = list(signature.parameters.values()), list(signature.parameters).index(place)
        parameters[at : at + 1] = [_make_parameter(name, sentences.get(name)) for name in added.values()]

        @functools.wraps(command)
        def called(**values: Any) -> None:
            given = {name: _read(name, values.pop(short)) for short, name in added.items()}
            command(**values, **{place: given})

        called.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del called.__wrapped__  # type: ignore[attr-defined]  # typer would ask it for the types
        return called

    return decorate


def _parameter_name(option: str) -> str:
    """max_time of max_time_s: what is typed has its unit in the value."""
    return option.removesuffix("_s").removesuffix("_bytes")


def _make_parameter(option: str, sentence: str | None) -> inspect.Parameter:
    name, row = _parameter_name(option), TABLE.get(option)
    help = sentence or TABLE[option].describe()
    flag = f"--{name.replace('_', '-')}"
    if row is not None and row.is_switch:
        annotation = Annotated[bool | None, typer.Option(f"{flag}/{row.metavar}", help=help)]
    else:
        annotation = Annotated[str | None, typer.Option(flag, metavar=row.metavar if row else "TIME", help=help)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def _read(option: str, given: Any) -> Any:
    if option not in TABLE:
        return read_duration(option, given, COMMAND_LINE)
    return check({option: given}, COMMAND_LINE)[option]
