"""Commands as Markdown, of what `benchax COMMAND --help` says: usage, sentences, arguments, options, examples. And the
table of options, with the verbs and commands that have each."""

from __future__ import annotations

import inspect
import re
from functools import cache
from typing import Any

import typer.main
from docstrings import escape

import benchax
from benchax.cli.main import COMMANDS, app
from benchax.options import TABLE


@cache
def _group() -> Any:
    return typer.main.get_command(app)


def render_command(name: str) -> str:
    """A section for one command, with sections for the commands below it (`benchax baseline set`)."""
    group = _group()
    with group.make_context("benchax", [name, "--help"], resilient_parsing=True) as context:
        command = group.get_command(context, name)
        parts = [f"## `benchax {name}`", _body(command, f"benchax {name}", context)]
        for below, inner in sorted(getattr(command, "commands", {}).items()):
            parts += [f"### `benchax {name} {below}`", _body(inner, f"benchax {name} {below}", context)]
    examples = "\n".join(f"$ {example}" for example in COMMANDS[name].examples)
    return "\n\n".join([*parts, f"```console\n{examples}\n```"])


def _body(command: Any, path: str, parent: Any) -> str:
    with command.make_context(path, [], parent=parent, resilient_parsing=True) as context:
        usage = " ".join([path, *command.collect_usage_pieces(context)])
        rows = [row for p in command.get_params(context) if (row := _row(p, context))]
    text = "\n\n".join(" ".join(part.split()) for part in (command.help or "").split("\n\n"))
    parts = [f"```text\n{usage}\n```", escape(text)]
    if rows:
        parts.append("\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]))
    return "\n\n".join(parts)


def _row(parameter: Any, context: Any) -> tuple[str, str] | None:
    """(what is typed, what it does), as the help shows it; None for what it hides."""
    shown = parameter.get_help_record(context)
    if shown is None or getattr(parameter, "hidden", False) or shown[0] == "-h, --help":
        return None
    typed = re.sub(r" <(list\[)?str\]?>$", "", " ".join(shown[0].split()))
    return f"`{typed}`".replace("|", "\\|"), escape(" ".join(shown[1].split()))


def render_options() -> str:
    """A row for each option: what it says, its default, and who has it."""
    verbs = {name: inspect.signature(found).parameters for name, found in _verbs().items()}
    lines = ["| option | does (default) | verbs | commands |", "|---|---|---|---|"]
    for name, row in TABLE.items():
        short = name.removesuffix("_s").removesuffix("_bytes")
        having = ", ".join(f"`{verb}`" for verb, parameters in verbs.items() if name in parameters)
        commands = [c for c, command in _group().commands.items() if short in {p.name for p in command.params}]
        lines.append(f"| `{name}` | {escape(row.describe())} | {having} | {', '.join(commands)} |")
    return "\n".join(lines)


def _verbs() -> dict[str, Any]:
    found = {name: getattr(benchax, name) for name in benchax.__all__}
    return {name: verb for name, verb in found.items() if inspect.isfunction(verb)}
