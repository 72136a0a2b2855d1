"""What help shows beside options: commands by what they are for, and two examples of each."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup

GROUPS: dict[str, tuple[str, ...]] = {
    "measure": ("run", "grid", "compiled-grid"),
    "compare": ("compare", "history", "bisect"),
    "understand": ("inspect", "profile", "watch", "audit", "checklist", "experiment"),
    "stored rows": ("runs", "list", "show", "baseline", "export", "import"),
    "this machine": ("doctor", "env", "demo"),
}
"""Every command that is no old name of another one."""

EXAMPLES: dict[str, tuple[str, str]] = {
    "run": ("benchax run benchmarks --quick", "benchax run jax.numpy:sort 'f32[{n}]' -p n=1000,100000"),
    "grid": ("benchax grid grid.py --plot times.svg", "benchax grid grid.py --resume last"),
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
    "runs": ("benchax runs", "benchax runs --limit 5 --json"),
    "list": ("benchax list --filter matmul", "benchax list --run last~1"),
    "show": ("benchax show", "benchax show 42 --statistics"),
    "baseline": ("benchax baseline set v1.2", "benchax baseline list"),
    "export": ("benchax export --format markdown", "benchax export last~1 --format csv --output rows.csv"),
    "import": ("benchax import benchmarks.json", "benchax import benchmarks.json --store old"),
    "doctor": ("benchax doctor", "benchax doctor --aa --max-time 3min"),
    "env": ("benchax env", "benchax env --json"),
    "demo": ("benchax demo", "benchax demo grid"),
}

WHOLE = 1000
"""Characters of a command's line of help: its first sentence is shown to the end, over as many lines as it takes."""


class GroupedCommands(TyperGroup):
    """Lists commands by what they are for, and gives each its examples."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        for title, names in GROUPS.items():
            known = [(name, command) for name in names if (command := self.get_command(ctx, name)) is not None]
            with formatter.section(title):
                formatter.write_dl([(name, command.get_short_help_str(limit=WHOLE)) for name, command in known])

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and not command.epilog and cmd_name in EXAMPLES:
            # The mark keeps lines as they are.
            command.epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in EXAMPLES[cmd_name])
        return command
