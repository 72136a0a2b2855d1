"""Where a value that makes JAX compile again comes from: the line that makes it anew, read from the user's file."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from benchax.auditing.syntax import callee_name, calls, def_of, holds, last_name, loops_around, scopes_around, tree_of
from benchax.results.audit import Where

JITS = ("jit", "filter_jit", "pjit")
_PATH = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[[^\]]*\])*")
_BEGINNING = re.compile(rf"({_PATH.pattern}): (?:weak type|committed|sharding)")
_CHANGE = re.compile(rf"({_PATH.pattern}): (?!tree structure)(.+) → ", re.DOTALL)


def changed_path(texts: Iterable[str]) -> str:
    """What has another value from call to call, of sentences as "state.tx.init: 1 → 2": state.tx where all of its parts
    change. Empty where they speak of other things, or of several arguments."""
    found = [_CHANGE.match(text) for text in texts if not text.startswith("and ")]
    paths = [match[1].split(".") for match in found if match is not None]
    if not paths or None in found:
        return ""
    common: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        common.append(parts[0])
    return ".".join(common)


def started_paths(texts: Iterable[str]) -> list[str]:
    """What began as something else, of sentences as "state.loss: weak type: f32 now, …"."""
    return list(dict.fromkeys(match[1] for text in texts if (match := _BEGINNING.match(text)) is not None))


def made_at(called: Where | None, path: str) -> Where | None:
    """The one line that gives an attribute of an argument another value: of state.tx that with `state.tx = …`,
    `state.replace(tx=…)` or `eqx.tree_at(lambda s: s.tx, …)`. In the loops around the call if there is any, else in the
    file, where what makes an object with it is none. None where there is none, or several."""
    tree = tree_of(called[0]) if called is not None else None
    if called is None or tree is None:
        return None
    for name in reversed([part.partition("[")[0] for part in path.split(".")[1:]]):
        in_loops = {line for loop in loops_around(tree, called[1]) for line in _lines_that_set(loop, f".{name}")}
        if lines := in_loops or set(_lines_that_set(tree, f".{name}", makers=False)):
            return (called[0], lines.pop()) if len(lines) == 1 else None
    return None


def started_at(called: Where | None, path: str, function: Where | None = None) -> Where | None:
    """The one line of the file, beside the call and the called `function`, that gives an argument or an attribute of
    one a value; else None. What is bound anew to a result, among others, is no such line."""
    tree = tree_of(called[0]) if called is not None else None
    if called is None or tree is None or not path:
        return None
    inside = def_of(tree, function[1]) if function is not None and function[0] == called[0] else None
    _, dot, name = path.rpartition(".")
    lines = set(_lines_that_set(tree, dot + name.partition("[")[0])) - {called[1]}
    lines = {line for line in lines if inside is None or not holds(inside, line)}
    return (called[0], lines.pop()) if len(lines) == 1 else None


def _lines_that_set(tree: ast.AST, name: str, *, makers: bool = True) -> Iterator[int]:
    """Lines that give a value to a name, or to an attribute: ".temperature". Without `makers`, not those that make an
    object with it."""
    attribute = name.removeprefix(".")
    for node in ast.walk(tree) if makers else _without_init(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign) and node.value is not None:
            set_to = (
                getattr(each, "attr", None if name != attribute else getattr(each, "id", None)) for each in targets
            )
            yield from (node.lineno for each in set_to if each == attribute)
        elif isinstance(node, ast.Call):
            if makers or callee_name(node) in ("replace", "_replace"):
                yield from (node.lineno for keyword in node.keywords if keyword.arg == attribute)
            if callee_name(node) == "tree_at" and any(getattr(one, "attr", "") == attribute for one in ast.walk(node)):
                yield node.lineno


def _without_init(tree: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(tree):
        if not (isinstance(child, ast.FunctionDef) and child.name == "__init__"):
            yield child
            yield from _without_init(child)


def declared_static_at(defined: Where | None, function: str) -> Where | None:
    """The line on which the user declares arguments of a function static; None where nothing declares any, as where
    equinox takes all that is no array as static."""
    return declared_at(defined, function, "static_arg")


def declared_at(defined: Where | None, function: str, setting: str) -> Where | None:
    """The line on which a function gets a setting of jax.jit whose name begins so: its decorator's, or that of its
    jax.jit."""
    tree = tree_of(defined[0]) if defined is not None else None
    if defined is None or tree is None:
        return None
    node = def_of(tree, defined[1])
    if isinstance(node, ast.FunctionDef) and (
        lines := [d.lineno for d in node.decorator_list if _declares(d, setting)]
    ):
        return defined[0], lines[0]
    given = [call for call in ast.walk(tree) if isinstance(call, ast.Call) and _declares(call, setting) and call.args]
    lines = [call.lineno for call in given if _is_of(call.args[0], function, defined[1])]
    return (defined[0], lines[0]) if lines else None


def jitted_at(defined: Where | None, function: str) -> Where | None:
    """The one line that jits a function of the user's: its decorator's, or that of a call of jit; else None."""
    tree = tree_of(defined[0]) if defined is not None else None
    if defined is None or tree is None:
        return None
    around = scopes_around(tree, defined[1])
    decorators = around[0].decorator_list if around and isinstance(around[0], ast.FunctionDef) else []
    lines = {one.lineno for one in decorators if any(last_name(part) in JITS for part in ast.walk(one))}
    lines = lines or {
        call.lineno for call in calls(tree, *JITS) if call.args and _is_of(call.args[0], function, defined[1])
    }
    return (defined[0], lines.pop()) if len(lines) == 1 else None


def takes_all_but_arrays_as_static(defined: Where | None) -> bool:
    """Is the function in a file that uses `equinox.filter_jit`, for which nobody declares what is static?"""
    tree = tree_of(defined[0]) if defined is not None else None
    return tree is not None and any(last_name(node) == "filter_jit" for node in ast.walk(tree))


def _declares(tree: ast.AST, setting: str) -> bool:
    found = calls(tree, "jit", "pjit", "partial")
    return any((keyword.arg or "").startswith(setting) for call in found for keyword in call.keywords)


def _is_of(node: ast.AST, function: str, line: int) -> bool:
    return last_name(node) == function.rpartition(".")[2] or (isinstance(node, ast.Lambda) and holds(node, line))
