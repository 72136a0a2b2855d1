"""All codes of remarks and kinds of failure as Markdown, read from the source of benchax.

A remark is made where it is found out, so the list of codes is the list of places that make one: calls of `Remark`, and
of the functions that pass on a `code` to it.
"""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from docstrings import escape

import benchax
from benchax.model import FailureKind

PACKAGE = Path(benchax.__file__).parent
FAILURES = {
    "error": "The function raised; `message` has the exception, `advice` what to do, where that is known.",
    "out_of_memory": "It asked for more than the device, or `memory_limit_bytes`, has.",
    "wrong_output": "Its result is not that of the reference, and the row was asked to fail for that.",
    "wrong_shape": "Its outputs do not look like those of the first function of the grid, or `check` refused them.",
    "crashed": "The process died: a signal or an exit code, and the stage in which it was.",
    "timeout": "A stage took longer than its limit; the process was killed.",
    "not_run": "It had no turn before the total time was spent.",
    "node_lost": "The node of a cluster went away while it was worked on, and so did those that had it after that.",
    "interrupted": "Ctrl-C came while it was worked on.",
}
OF = {
    "measuring": "run, bench, grid", "grids": "grid", "machine": "doctor", "paired_runs": "compare",
    "profiling": "profile", "watching": "watch", "auditing": "audit", "experiments": "experiment",
    "inspecting": "inspect", "store": "import", "reporting": "shown results", "cli": "profile",
    "workers": "run, bench, grid", "clusters": "grid, run",
}  # fmt: skip
"""By the folder of the module: which verb says it."""


class Found(NamedTuple):
    """One place that makes a remark."""

    code: str
    severity: str
    """Empty where it depends."""
    text: str
    """Of the message: what is filled in is `…`."""
    folder: str


def render_remarks(_: Sequence[str]) -> str:
    by_code: dict[str, list[Found]] = {}
    for found in find_remarks():
        by_code.setdefault(found.code, []).append(found)
    lines = ["| code | severity | says | said by |", "|---|---|---|---|"]
    for code, places in sorted(by_code.items()):
        severities = ", ".join(dict.fromkeys(p.severity or "depends" for p in places))
        texts = " — or: ".join(dict.fromkeys(escape(p.text) for p in places if p.text)) or "(text of the program)"
        said_by = ", ".join(dict.fromkeys(OF[p.folder] for p in places))
        lines.append(f"| `{code}` | {severities} | {texts} | {said_by} |")
    return "\n".join(lines)


def render_failures(_: Sequence[str]) -> str:
    rows = [f"| `{kind}` | {FAILURES[kind]} |" for kind in typing.get_args(FailureKind)]
    return "\n".join(["| kind | means |", "|---|---|", *rows])


def find_remarks() -> list[Found]:
    """Every place in the source of benchax that makes a remark with a code of its own."""
    return [found for file in sorted(PACKAGE.rglob("*.py")) for found in _of_file(file)]


def _of_file(file: Path) -> Iterator[Found]:
    source = file.read_text(encoding="utf-8")
    if "Remark" not in source:
        return
    tree = ast.parse(source)
    constants = _assigned(tree.body)
    makers = {"Remark": None} | dict(_makers(tree))
    folder = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    for scope in ast.walk(tree):
        if not isinstance(scope, ast.FunctionDef | ast.Module):
            continue
        assigned = [*constants, *_assigned(ast.walk(scope))]
        for call in _own_calls(scope):
            name = _called(call)
            if name in makers and call.args:
                values = {target: value for line, target, value in sorted(assigned, key=_line) if line < call.lineno}
                said = call.args[2:] if name == "Remark" else call.args[1:]
                graver = makers[name] or ", ".join(_either(call.args[1], values) if len(call.args) > 1 else [])
                text = " ".join(" ".join(filter(None, (_text(part, values) for part in said))).split())
                for code in _either(call.args[0], values):
                    yield Found(code, graver, text, folder)


def _assigned(statements: Iterable[ast.AST]) -> list[tuple[int, str, ast.expr]]:
    """(line, name, value) of each `name = value`."""
    return [
        (n.lineno, n.targets[0].id, n.value)
        for n in statements
        if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Name)
    ]


def _line(assignment: tuple[int, str, ast.expr]) -> int:
    return assignment[0]


def _either(node: ast.expr, values: dict[str, ast.expr]) -> list[str]:
    """The texts that an expression may give: both of `a if b else c`; none where it is not written there."""
    branches = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
    return [text for branch in branches if (text := _text(branch, values))]


def _own_calls(scope: ast.AST) -> Iterator[ast.Call]:
    """Calls in `scope`, without those in the functions inside it."""
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, ast.FunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child
        yield from _own_calls(child)


def _makers(tree: ast.Module) -> Iterator[tuple[str, str | None]]:
    """Functions whose first argument is the code of a remark, and the severity that they give it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(a.arg == "code" for a in node.args.args[:2]):
            for call in ast.walk(node):
                if isinstance(call, ast.Call) and _called(call) == "Remark" and len(call.args) > 1:
                    yield node.name, _text(call.args[1], {}) or None


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _text(node: ast.expr, values: dict[str, ast.expr]) -> str:
    """The text that an expression gives, as far as it is written there; `…` where something is filled in."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return re.sub(r"…+", "…", "".join(_text(p, {}) if isinstance(p, ast.Constant) else "…" for p in parts))
        case ast.BinOp(op=ast.Add(), left=left, right=right):
            return _text(left, values) + _text(right, values)
        case ast.Name(id=name) if name in values:
            return _text(values[name], {key: value for key, value in values.items() if key != name})
    return ""
