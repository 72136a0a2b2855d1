"""`benchax`: holds the commands, and is the one place that turns errors into exit codes.

    0    fine
    1    a regression beyond the limits of a comparison
    2    an error: a wrong argument, a case that failed, rows that could not be stored
    3    an unclear verdict, if you asked for this code
    130  interrupted; benchax keeps every finished row

A failure inside a case is a row, not an error of the program. A grid cell that reached a time limit is a result.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import shlex
import sys
from collections.abc import Sequence

import typer

from benchax.cli.console import line, note, silence
from benchax.cli.help import SETTINGS, GroupedCommands
from benchax.errors import BenchaxError
from benchax.printable import quote

app = typer.Typer(
    name="benchax",
    cls=GroupedCommands,
    help="Benchmark JAX functions: every stage, memory, and steady state, with intervals and reasons.",
    no_args_is_help=True,
    add_completion=True,
    **SETTINGS,
)
_ASCII = {
    "µ": "u", "–": "-", "·": "|", "…": "...", "±": "+-", "×": "x", "✗": "x", "━": "-", "╸": "-", "╺": "-",
    "▁": "_", "▂": "_", "▃": "-", "▄": "-", "▅": "=", "▆": "=", "▇": "#", "█": "#", "┊": "|",
}  # fmt: skip


_MEASURING = {
    "run", "grid", "compiled-grid", "compare", "experiment", "profile", "inspect", "audit",
    "checklist", "watch", "bisect", "doctor", "demo",
}  # fmt: skip
"""These commands import JAX or run a program before they can show anything."""


@app.callback(invoke_without_command=True)
def version(
    context: typer.Context, show_version: bool = typer.Option(False, "--version", help="Print the version and exit.")
) -> None:
    if context.invoked_subcommand in _MEASURING and "--" not in sys.argv:  # a program of the user's takes it as it does
        from benchax.environment import memory_on_demand

        os.environ.update(memory_on_demand())
    if sys.stderr.isatty() and (first := first_line(context.invoked_subcommand or "", sys.argv[1:])):
        note(first)
    if show_version:
        from benchax.environment import installed

        line(installed("benchax") or "unknown: this copy was not installed")
        raise typer.Exit


def first_line(command: str, words: Sequence[str]) -> str:
    """Returns the line to show before importing JAX, which takes seconds. It is empty if the command has no wait."""
    if command not in _MEASURING or {"-h", "--help", "--list"} & {*words}:
        return ""
    if "--" in words:
        program = shlex.join(words[words.index("--") + 1 :])
        return f"benchax {command}: running {program}; the report comes when it has ended"
    return f"benchax {command}: importing JAX"


def main() -> None:
    """Runs the console script."""
    _never_fail_to_print()
    try:
        try:
            app()  # ends in SystemExit, with 130 after Ctrl-C
        finally:
            sys.stdout.flush()  # not left to the end of the interpreter, where a broken pipe could not be caught
    except BenchaxError as error:
        note(f"error: {error}")
        sys.exit(2)
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # of a word that was looked for as a file
            note(f"error: {quote(error.filename)} is too long for the name of a file")
            sys.exit(2)
        if error.errno not in (errno.ENOSPC, errno.EFBIG):
            raise
        note(f"error: cannot write the output: {error}")
        silence(sys.stdout)
        sys.exit(2)
    except SystemExit as end:
        # typer ends with 1 at a broken pipe that it sees itself
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        silence(sys.stdout)


def _never_fail_to_print() -> None:
    """Writes u on a terminal that has no µ. Otherwise an exception would come after minutes of measuring."""
    codecs.register_error("benchax", _spell)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="benchax")


def _spell(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_ASCII.get(c, "?") for c in error.object[error.start : error.end]), error.end


if __name__ == "__main__":
    main()
