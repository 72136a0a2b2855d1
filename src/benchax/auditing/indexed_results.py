"""Which results of a call are read for single rows alone, as the text of the user's file tells: history[-1].

Only what is bound to a name that is bound once, and read in nothing but such places, in the function around the call or
in the module: everything else may read all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from benchax.auditing.bindings import calls_on
from benchax.auditing.syntax import callee_name, calls, scopes_around, tree_of
from benchax.results.audit import Where

MAPS = ("map", "tree_map")
PASSING = ("block_until_ready", "shape", "dtype", "ndim")
"""Attributes and functions that read no element."""


def indexed_results(called: Where | None, n_results: int) -> dict[int, int]:
    """By position among the flat results of the call: the line that takes a row of it first."""
    tree = tree_of(called[0]) if called is not None else None
    if called is None or tree is None:
        return {}
    scope = next(iter(scopes_around(tree, called[1])), tree)
    # A function that is called elsewhere too may be asked for the whole there.
    made = {id(call) for call in calls_on(tree, called[1]) if len(list(calls(tree, callee_name(call)))) == 1}
    found: dict[int, int] = {}
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and id(node.value) in made and _is_row(node.slice):
            found |= dict.fromkeys(range(n_results), node.lineno)
        elif isinstance(node, ast.Assign) and id(node.value) in made and len(node.targets) == 1:
            found |= _of_targets(scope, node.targets[0], n_results)
    return found


def _of_targets(scope: ast.AST, target: ast.expr, n_results: int) -> dict[int, int]:
    if isinstance(target, ast.Name):
        line = _indexed_at(scope, target.id)
        return dict.fromkeys(range(n_results), line) if line else {}
    names = target.elts if isinstance(target, ast.Tuple) else []
    # Nested results have more leaves than names, and which is whose is not known here.
    lines = (_indexed_at(scope, getattr(one, "id", "")) for one in (names if len(names) == n_results else ()))
    return {i: line for i, line in enumerate(lines) if line}


def _indexed_at(scope: ast.AST, name: str) -> int | None:
    """The first line that takes a row of it; None where it is read otherwise as well, or bound again."""
    nodes = [node for node in ast.walk(scope) if isinstance(node, ast.Name) and node.id == name]
    reads = [node for node in nodes if isinstance(node.ctx, ast.Load)]
    rows, others = set(map(id, _row_reads(scope))), set(map(id, _passing_reads(scope)))
    lines = [node.lineno for node in reads if id(node) in rows]
    is_once = len(nodes) - len(reads) == 1
    return min(lines) if lines and is_once and all(id(node) in rows | others for node in reads) else None


def _row_reads(scope: ast.AST) -> Iterator[ast.expr]:
    """x of x[-1], and of jax.tree.map(lambda leaf: leaf[-1], x)."""
    for node in ast.walk(scope):
        if isinstance(node, ast.Subscript) and _is_row(node.slice):
            yield node.value
        elif isinstance(node, ast.Call) and callee_name(node) in MAPS and len(node.args) == 2:
            body = node.args[0].body if isinstance(node.args[0], ast.Lambda) else None
            if isinstance(body, ast.Subscript) and _is_row(body.slice):
                yield node.args[1]


def _passing_reads(scope: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and node.attr in PASSING:
            yield node.value
        elif isinstance(node, ast.Call) and callee_name(node) in (*PASSING, "len"):
            yield from node.args


def _is_row(index: ast.expr) -> bool:
    """-1, or -1 and whatever of the other axes."""
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.UnaryOp) and isinstance(first.op, ast.USub):
        first = first.operand
    return isinstance(first, ast.Constant) and type(first.value) is int
