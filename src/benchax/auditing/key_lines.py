"""At which line of a loop the key of a draw is chosen: outward from the draw, for as long as the text says that the key
is what the function around was given."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TypeGuard

from benchax.auditing.bindings import argument_of, bindings_of, calls_on, parameters_of
from benchax.auditing.recorder.hooks import users_of_keys
from benchax.auditing.syntax import Function, callee_name, scopes_around, tree_of
from benchax.program.jaxpr import OwnFrame
from benchax.results.audit import Where

DERIVES = ("split", "fold_in", "clone", "wrap_key_data", "key_data")
"""Functions of `jax.random` that make keys of a key."""


def line_that_chooses(frames: Sequence[OwnFrame]) -> Where | None:
    """The line where the key is passed on from a closure, an attribute or a carry.

    Args:
        frames: from the body of the loop to the draw.

    Returns:
        The line of the body, where the text does not tell; None without any frame.
    """
    key, callee = "", ""
    for frame in reversed(frames):
        scope = _scope_of(frame)
        given = _key_passed_at(frame, callee, key) if scope is not None else None
        if scope is None or given is None:
            break
        name = _name_before(scope, given)
        if name not in parameters_of(scope):
            return frame.file, frame.line
        key, callee = name, getattr(scope, "name", "")
    return (frames[0].file, frames[0].line) if frames else None


def _scope_of(frame: OwnFrame) -> ast.FunctionDef | ast.Lambda | None:
    tree = tree_of(frame.file)
    around: list[Function] = scopes_around(tree, frame.line) if tree is not None else []
    return around[0] if around and not isinstance(around[0], ast.AsyncFunctionDef) else None


def _key_passed_at(frame: OwnFrame, callee: str, key: str) -> ast.expr | None:
    """What a line gives to a function as its key, or to a function of `jax.random`; None where it is not one."""
    tree = tree_of(frame.file)
    if tree is None:
        return None
    if not callee:
        found = [call.args[0] for call in calls_on(tree, frame.line) if callee_name(call) in _DRAWS and call.args]
        return found[0] if len({ast.unparse(one) for one in found}) == 1 else None
    scopes = [one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == callee]
    called = [call for call in calls_on(tree, frame.line) if callee_name(call) == callee]
    given = argument_of(called[0], key, parameters_of(scopes[0])) if len(called) == len(scopes) == 1 else None
    return given[0] if given is not None and not given[1] else None


def _name_before(scope: ast.AST, given: ast.expr) -> str:
    """The name that the function had the key by before it split it; empty where it took it out of something."""
    while True:
        whole = given.value if isinstance(given, ast.Subscript) else given
        if _derives(whole):
            given = whole.args[0]
            continue
        name = getattr(whole, "id", "")
        bound = [(value, path) for value, path in bindings_of(scope, name) if not _mentions(value, name)]
        if len(bound) != 1:
            return name if not bound and whole is given else ""
        value, path = bound[0]
        if not _derives(value) and (path or whole is not given):
            return ""
        given = value


def _derives(node: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and callee_name(node) in DERIVES and bool(node.args)


def _mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


_DRAWS = (*users_of_keys(), *DERIVES)
