"""Defines options of several commands. Each has one name, one type and one help text, as in the library.

A duration is a text here, such as 2.5, 500ms, 2min, and `units.read_duration` reads it. `options.read_seed` reads a
seed, so that errors have the words of the library. typer would use different words.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

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
MaxTime = Annotated[
    str | None, typer.Option(metavar="TIME", help="Limit the total time to about this: 15, 500ms, 2min (no limit).")
]
Timeout = Annotated[
    str | None, typer.Option(metavar="TIME", help="End any stage in a worker after this time: 30, 500ms (no limit).")
]
MemoryLimit = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Limit the memory of a worker: 512MiB, 4GiB (no limit).")
]
Resolution = Annotated[
    str | None,
    typer.Option(metavar="SHARE", help='Call changes below this "same": 1% finds +2 %, and takes longer (5%).'),
]
Seed = Annotated[str | None, typer.Option(metavar="N", help="Seed for data made from specs: a whole number (0).")]
Store = Annotated[str | None, typer.Option(metavar="DIR", help="Folder of the database (default .benchmarks).")]
StoreOrOff = Annotated[
    str | None, typer.Option(metavar="DIR", help="Folder of the database (default .benchmarks), or off.")
]
On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="CLUSTER",
        help="Measure on Ray nodes: HOST:PORT, ray://HOST:PORT, or ray, which starts one here (this machine).",
    ),
]
Plot = Annotated[Path | None, typer.Option(metavar="FILE", help="Draw it to FILE: .png, .svg, .pdf.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write everything, with charts, to one HTML file.")
]
JsonFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write everything to FILE, as JSON.")
]
Reasons = Annotated[
    bool, typer.Option("--verbose", "-v", help="Give the reason for each number that was not measured.")
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Also show what is fine or does not apply, and why.")]
MaxTimeOfEach = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Start no comparison of a function after this time: 30, 500ms, 2min (60)."),
]


def limits_of_audit(max_time: str | None, timeout: str | None, seed: str | None) -> dict[str, Any]:
    """Reads the limits of an audit or a checklist of functions."""
    from benchax.auditing.audit import read_limits
    from benchax.auditing.trial import TIMEOUT_S

    return read_limits(max_time, TIMEOUT_S if timeout is None else timeout, seed, COMMAND_LINE)
