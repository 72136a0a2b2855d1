"""`benchax`: holds the commands, and is the one place that turns errors into exit codes.

    0    fine
    1    a regression beyond the limits of a comparison
    2    an error: a wrong argument, a case that failed, rows that could not be stored
    3    an unclear verdict, if you asked for this code
    130  interrupted; benchax keeps every finished row

A failure inside a case is a row, not an error of the program. A grid cell that reached a time limit is a result.

Lists the commands, each with its function and its examples. `benchax --help` imports none of them, and one command
imports no other, because help and `benchax list` must not wait for what others need.
"""

from __future__ import annotations

import codecs
import errno
import importlib
import io
import os
import shlex
import sys
from collections import UserDict
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from benchax.cli.console import WithCommand, line, note, silence
from benchax.errors import BenchaxError, UsageError
from benchax.printable import quote

SETTINGS: dict[str, Any] = {
    # Plain help: formatting it with rich would cost a third of the start-up time.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""benchax and each of its commands use these settings."""


class Command(NamedTuple):
    """One command in the list of commands."""

    group: str
    home: str
    """Its module below this folder, and its function there."""
    summary: str
    """The first sentence of its docstring."""
    examples: tuple[str, str]
    settings: Mapping[str, Any] = {}
    """Settings of this command alone."""


COMMANDS: dict[str, Command] = {
    "run": Command(
        "measure",
        "run.run",
        "Measure benchmarks, or one function, and store a row for each case.",
        ("benchax run benchmarks --quick", "benchax run jax.numpy:sort 'f32[{n}]' -p n=1000,100000"),
    ),
    "grid": Command(
        "measure",
        "grid.grid",
        "Run every function on every data point, under strict limits, and show times and statuses.",
        ("benchax grid grid.py --plot times.svg", "benchax grid grid.py --on ray --resume last"),
    ),
    "compiled-grid": Command(
        "measure",
        "grid.compiled_grid",
        "Run functions × repetitions in one compiled call, with the clock and the limits inside.",
        ("benchax compiled-grid a.py:f a.py:g f32[1024]", "benchax compiled-grid a.py:f f32[8] --python-loop"),
    ),
    "compare": Command(
        "compare",
        "compare.compare",
        "Compare functions, or two versions of benchmarks: which is faster, and how sure is it?",
        (
            "benchax compare a.py:naive a.py:fused f32[1024,1024]",
            "benchax compare --ref main benchmarks --max-time 5min",
        ),
    ),
    "history": Command(
        "compare",
        "compare.history",
        "Show comparisons with a baseline from commit to commit, and where the level changed.",
        ("benchax history", "benchax history matmul --plot matmul.svg"),
    ),
    "bisect": Command(
        "compare",
        "compare.bisect",
        "Find the commit, or the version of JAX, that made cases slower.",
        ("benchax bisect v1.2 HEAD benchmarks", "benchax bisect --jax 0.9.0,0.10.2 benchmarks"),
    ),
    "inspect": Command(
        "understand",
        "inspect.inspect",
        "Show what the compiler makes of a function: program, work, memory, constants, and differences.",
        ("benchax inspect jax.nn:softmax f32[128,512]", "benchax inspect a.py:f f32[1024] --show hlo --time"),
    ),
    "profile": Command(
        "understand",
        "profile.profile",
        "Show where device time goes: a table of operations, and files for Perfetto, TensorBoard and XProf.",
        ("benchax profile a.py:f f32[1024,1024]", "benchax profile -- python train.py"),
        {"cls": WithCommand},
    ),
    "watch": Command(
        "understand",
        "watch.watch",
        "Run a program unchanged, and show what JAX compiled in it, why, and what its cache kept.",
        ("benchax watch -- python train.py", "benchax watch --transfers --timeout 2min -- python train.py"),
        {"context_settings": {"allow_interspersed_args": False, "ignore_unknown_options": False}},
    ),
    "audit": Command(
        "understand",
        "audit.audit",
        "Find what makes a function or a program slow, large or wrong, and show a measurement for each finding.",
        ("benchax audit a.py:step f32[32,128]", "benchax audit -- python train.py"),
        {"cls": WithCommand},
    ),
    "checklist": Command(
        "understand",
        "audit.checklist",
        "Go through a checklist of optimisations, and tick off each one by a measurement.",
        ("benchax checklist a.py:step f32[32,128]", "benchax checklist bench_step.py --max-time 1min"),
    ),
    "experiment": Command(
        "understand",
        "experiment.experiment",
        "Try variants of a function, and show how each changes its speed, memory and errors.",
        ("benchax experiment a.py:step f32[32,128] --variants bf16,donate", "benchax experiment --list"),
    ),
    "explain": Command(
        "understand",
        "explain.explain",
        "Explain the code of a remark, a failure, a finding, or an error.",
        ("benchax explain folded", "benchax explain"),
    ),
    "runs": Command(
        "stored rows",
        "store.list_runs",
        "List the runs in the store, the newest last; `benchax list --run RUN` lists the rows of one.",
        ("benchax runs", "benchax runs --limit 5 --json"),
    ),
    "list": Command(
        "stored rows",
        "store.list_rows",
        "List stored rows; `benchax show ID` shows one, `benchax runs` lists whole runs.",
        ("benchax list --filter matmul", "benchax list --run last~1"),
    ),
    "show": Command(
        "stored rows",
        "store.show_row",
        "Show one stored row: every stage, timer, and remark, or its statistics, or its raw samples.",
        ("benchax show", "benchax show 42 --statistics"),
    ),
    "report": Command(
        "stored rows",
        "export.report",
        "Write stored results as a page: all numbers and interactive charts in one file.",
        ("benchax report", "benchax report v1.2 --filter matmul -o matmul.html"),
    ),
    "site": Command(
        "stored rows",
        "export.site",
        "Write a site of the history: recent changes, a page for each case, and any two commits side by side.",
        ("benchax site", "benchax site -o public --store postgresql://ci@db/benchmarks"),
    ),
    "baseline": Command(
        "stored rows",
        "store.baseline",
        "Give names to runs, so that `benchax compare NAME` can use them.",
        ("benchax baseline set v1.2", "benchax baseline list"),
    ),
    "export": Command(
        "stored rows",
        "export.export",
        "Write stored results in the format of another tool.",
        ("benchax export --format markdown", "benchax export last~1 --format csv --output rows.csv"),
    ),
    "import": Command(
        "stored rows",
        "store.import_file",
        "Store the results in a file of pytest-benchmark, except those that are already in the store.",
        ("benchax import benchmarks.json", "benchax import benchmarks.json --store old"),
    ),
    "migrate": Command(
        "stored rows",
        "store.migrate",
        "Make the tables of a store, or bring them up to date.",
        ("benchax migrate", "benchax migrate --store postgresql://owner@server/benchax"),
    ),
    "doctor": Command(
        "this machine",
        "doctor.doctor",
        "Check the clock, the noise of this machine, and the settings that disturb measurements.",
        ("benchax doctor", "benchax doctor --aa --max-time 3min"),
    ),
    "env": Command(
        "this machine",
        "doctor.env",
        "Show the environment that benchax stores with every row.",
        ("benchax env", "benchax env --json"),
    ),
    "demo": Command(
        "this machine",
        "demo.demo",
        "Measure a small model and compare two functions in about five seconds, or run another demo.",
        ("benchax demo", "benchax demo grid"),
    ),
}


@cache
def load(name: str) -> Any:
    """Imports a command."""
    command = COMMANDS[name]
    module, _, function = command.home.partition(".")
    found = getattr(importlib.import_module(f"benchax.cli.{module}"), function)
    if not isinstance(found, typer.Typer):
        alone = typer.Typer(add_completion=False, **SETTINGS)
        alone.command(name, **command.settings)(found)
        found = alone
    made = typer.main.get_command(found)
    # The mark keeps lines as they are.
    made.epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in command.examples)
    return made


class CommandsOnRequest(UserDict[str, Any]):
    """Maps names to commands. It imports each command on first use."""

    def __getitem__(self, name: str) -> Any:
        return load(name)


class GroupedCommands(TyperGroup):
    """Lists commands by their purpose, and adds examples to each."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = CommandsOnRequest(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for group in dict.fromkeys(command.group for command in COMMANDS.values()):
            with formatter.section(group):
                formatter.write_dl([(name, one.summary) for name, one in COMMANDS.items() if one.group == group])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggests a command to users who type a program or a function instead of a command."""
        if args and args[0] not in COMMANDS:
            from benchax.discovery import suggest_for_words

            if hint := suggest_for_words(args):
                raise UsageError(f"there is no command {args[0]!r}", "a command, which `benchax -h` lists", hint)
        return super().resolve_command(ctx, args)


# ---- commands --------------------------------------------------------------------------------------------------------


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
        if isinstance(error, PermissionError) and error.filename is not None:
            note(f"error: {quote(error.filename)}: {error.strerror}")
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
