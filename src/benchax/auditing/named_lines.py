"""The line that gives a value a second name."""

from __future__ import annotations

import ast

from benchax.auditing.bindings import bindings_of, calls_on, element_of
from benchax.auditing.syntax import scopes_around, tree_of
from benchax.results.audit import Where


def named_again_at(first: Where | None, second: Where | None) -> Where | None:
    """The line that gives a value another name, `k_x, k_y = key, key`, where calls on two lines are given it by
    different ones; None where they are not."""
    tree = tree_of(second[0]) if second is not None else None
    if first is None or second is None or tree is None or first[0] != second[0]:
        return None
    given = _passed_names(tree, first[1])
    for at, (name, value, line) in _passed_names(tree, second[1]).items():
        other, known, _ = given.get(at, ("", "", None))
        if line is not None and known == value and other != name:
            return second[0], line
    return None


def _passed_names(tree: ast.AST, line: int) -> dict[int, tuple[str, str, int | None]]:
    """By position, what calls on a line are given by name: (the name, the one that it stands for, the line which says
    so)."""
    args = [(i, arg) for call in calls_on(tree, line) for i, arg in enumerate(call.args) if isinstance(arg, ast.Name)]
    return {i: (name.id, *_meant_by(tree, name)) for i, name in args}


def _meant_by(tree: ast.AST, name: ast.Name) -> tuple[str, int | None]:
    bound = [one for scope in scopes_around(tree, name.lineno)[:1] for one in bindings_of(scope, name.id)]
    if len(bound) != 1:
        return name.id, None
    value, path = bound[0]
    if path and isinstance(value, ast.Tuple):
        value = element_of(value, path[0])
    return (value.id, value.lineno) if isinstance(value, ast.Name) else (name.id, None)
