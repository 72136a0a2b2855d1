"""Defines options of several commands. Each has one name, one type and one help text, as in the library.

Options of the library come from its table (`benchax.options`). They are texts to typer, and the table's readers read
them, so that errors have the words of the library.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from benchax.options import TABLE, check
from benchax.units import read_duration

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
        parameters: list[inspect.Parameter] = []
        for parameter in signature.parameters.values():
            made = [_make_parameter(name, sentences.get(name)) for name in added.values()]
            parameters += made if parameter.name == place else [parameter]

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
