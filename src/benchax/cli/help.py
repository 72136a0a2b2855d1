"""Lists the commands. In addition to options, their help shows their purpose and two examples of each.

benchax imports the module of a command only when you use the command. The other modules would take a third of the time
of `benchax list`.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from benchax.cli.options import WithCommand
from benchax.errors import UsageError

FUNCTIONS: dict[str, str] = {
    # The verbs of the library, by their names there; `run` is `bench` of all benchmarks in files.
    "run": "run.run",
    "grid": "grid.grid",
    "compiled-grid": "compiled_grid.compiled_grid",
    "compare": "compare.compare",
    "experiment": "experiment.experiment",
    "profile": "profile.profile",
    "inspect": "inspect.inspect",
    "audit": "audit.audit",
    "checklist": "audit.checklist",
    "watch": "watch.watch",
    "explain": "explain.explain",
    "bisect": "bisect.bisect",
    # What is stored.
    "runs": "store.list_runs",
    "list": "store.list_rows",
    "show": "store.show_row",
    "baseline": "store.baseline",
    "history": "history.history",
    "report": "report.report",
    "site": "report.site",
    "export": "export.export",
    "import": "store.import_file",
    "migrate": "store.migrate",
    # This machine.
    "env": "doctor.env",
    "doctor": "doctor.doctor",
    "demo": "demo.demo",
}
"""Each command has its module and function here, below this folder."""
TAKES_COMMAND = ("profile", "audit")
"""In these commands, the words after `--` are a program. In `watch`, all words are a program."""
SETTINGS: dict[str, Any] = {
    # Plain help: formatting it with rich would cost a third of the start-up time.
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}
"""benchax and each of its commands use these settings."""

GROUPS: dict[str, tuple[str, ...]] = {
    "measure": ("run", "grid", "compiled-grid"),
    "compare": ("compare", "history", "bisect"),
    "understand": ("inspect", "profile", "watch", "audit", "checklist", "experiment", "explain"),
    "stored rows": ("runs", "list", "show", "report", "site", "baseline", "export", "import", "migrate"),
    "this machine": ("doctor", "env", "demo"),
}
"""The groups contain every command."""

EXAMPLES: dict[str, tuple[str, str]] = {
    "run": ("benchax run benchmarks --quick", "benchax run jax.numpy:sort 'f32[{n}]' -p n=1000,100000"),
    "grid": ("benchax grid grid.py --plot times.svg", "benchax grid grid.py --on ray --resume last"),
    "compiled-grid": (
        "benchax compiled-grid a.py:f a.py:g f32[1024]",
        "benchax compiled-grid a.py:f f32[8] --python-loop",
    ),
    "compare": (
        "benchax compare a.py:naive a.py:fused f32[1024,1024]",
        "benchax compare --ref main benchmarks --max-time 5min",
    ),
    "history": ("benchax history", "benchax history matmul --plot matmul.svg"),
    "bisect": ("benchax bisect v1.2 HEAD benchmarks", "benchax bisect --jax 0.9.0,0.10.2 benchmarks"),
    "inspect": ("benchax inspect jax.nn:softmax f32[128,512]", "benchax inspect a.py:f f32[1024] --show hlo --time"),
    "profile": ("benchax profile a.py:f f32[1024,1024]", "benchax profile -- python train.py"),
    "watch": ("benchax watch -- python train.py", "benchax watch --transfers --timeout 2min -- python train.py"),
    "audit": ("benchax audit a.py:step f32[32,128]", "benchax audit -- python train.py"),
    "checklist": ("benchax checklist a.py:step f32[32,128]", "benchax checklist bench_step.py --max-time 1min"),
    "experiment": ("benchax experiment a.py:step f32[32,128] --variants bf16,donate", "benchax experiment --list"),
    "explain": ("benchax explain folded", "benchax explain"),
    "runs": ("benchax runs", "benchax runs --limit 5 --json"),
    "list": ("benchax list --filter matmul", "benchax list --run last~1"),
    "show": ("benchax show", "benchax show 42 --statistics"),
    "report": ("benchax report", "benchax report v1.2 --filter matmul -o matmul.html"),
    "site": ("benchax site", "benchax site -o public --store postgresql://ci@db/benchmarks"),
    "baseline": ("benchax baseline set v1.2", "benchax baseline list"),
    "export": ("benchax export --format markdown", "benchax export last~1 --format csv --output rows.csv"),
    "import": ("benchax import benchmarks.json", "benchax import benchmarks.json --store old"),
    "migrate": ("benchax migrate", "benchax migrate --store postgresql://owner@server/benchax"),
    "doctor": ("benchax doctor", "benchax doctor --aa --max-time 3min"),
    "env": ("benchax env", "benchax env --json"),
    "demo": ("benchax demo", "benchax demo grid"),
}

WHOLE = 1000
"""The list of commands allows this many characters, so that it shows each first sentence to its end."""


class CommandsOnRequest(Mapping[str, Any]):
    """Maps names to commands. It imports each command on first use."""

    def __init__(self) -> None:
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(FUNCTIONS)

    def __len__(self) -> int:
        return len(FUNCTIONS)


def _load(name: str) -> Any:
    module, _, function = FUNCTIONS[name].partition(".")
    found = importlib.import_module(f"benchax.cli.{module}")
    if isinstance(group := getattr(found, function), typer.Typer):
        return typer.main.get_command(group)
    alone = typer.Typer(add_completion=False, **SETTINGS)
    settings = {"context_settings": found.CONTEXT} if name == "watch" else {}
    settings |= {"cls": WithCommand} if name in TAKES_COMMAND else {}
    alone.command(name, **settings)(group)
    return typer.main.get_command(alone)


class GroupedCommands(TyperGroup):
    """Lists commands by their purpose, and adds examples to each."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands: Any = CommandsOnRequest()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            known = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(limit=WHOLE)) for name, command in known])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Suggests a command to users who type a program or a function instead of a command."""
        if args and args[0] not in FUNCTIONS:
            from benchax.discovery import suggest_for_words

            if hint := suggest_for_words(args):
                raise UsageError(f"there is no command {args[0]!r}", "a command, which `benchax -h` lists", hint)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not command.epilog and cmd_name in EXAMPLES:
            # The mark keeps lines as they are.
            command.epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in EXAMPLES[cmd_name])
        return command
