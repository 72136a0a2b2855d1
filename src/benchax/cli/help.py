"""Lists the commands, each with its function and its examples. `benchax --help` imports none of them, and one command
imports no other, because help and `benchax list` must not wait for what others need.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from benchax.cli.options import WithCommand
from benchax.errors import UsageError

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
        "compiled_grid.compiled_grid",
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
        "history.history",
        "Show comparisons with a baseline from commit to commit, and where the level changed.",
        ("benchax history", "benchax history matmul --plot matmul.svg"),
    ),
    "bisect": Command(
        "compare",
        "bisect.bisect",
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
        "report.report",
        "Write stored results as a page: all numbers and interactive charts in one file, to send or to keep.",
        ("benchax report", "benchax report v1.2 --filter matmul -o matmul.html"),
    ),
    "site": Command(
        "stored rows",
        "report.site",
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


class CommandsOnRequest(Mapping[str, Any]):
    """Maps names to commands. It imports each command on first use."""

    def __getitem__(self, name: str) -> Any:
        return load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class GroupedCommands(TyperGroup):
    """Lists commands by their purpose, and adds examples to each."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = CommandsOnRequest()

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
