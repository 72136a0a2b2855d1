"""Which results of a call in a loop the user's file reads in few iterations: under `if step % 100 == 0`, behind the
loop, or nowhere."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from benchax.auditing.bindings import calls_on
from benchax.auditing.syntax import holds, last_name, loops_around, scopes_around, tree_of
from benchax.results.audit import Where


class RareReads(NamedTuple):
    """How the results that a loop does not give back are read."""

    names: tuple[str, ...]
    how: str
    """For a sentence: "where step % 100 == 0, at line 41"."""


def rare_reads(called: Where | None) -> RareReads | None:
    """Of the one call on a line of a loop, whose results are bound to names. None where any of them that is not an
    argument again may be read in each iteration, or none is left."""
    tree = tree_of(called[0]) if called is not None else None
    loop = max(loops_around(tree, called[1]), key=lambda one: one.lineno, default=None) if tree and called else None
    if tree is None or called is None or not isinstance(loop, ast.For | ast.While):
        return None
    scope = next(iter(scopes_around(tree, called[1])), tree)
    call, leaves = _binding(scope, called[1])
    arguments = (*call.args, *call.keywords) if call is not None else ()
    given = {last_name(node) for one in arguments for node in ast.walk(one)}
    others = [leaf for leaf in leaves if last_name(leaf) not in given]
    # What is bound to an attribute may be read anywhere.
    names = tuple(leaf.id for leaf in others if isinstance(leaf, ast.Name))
    ways = [way for name in names for way in _ways(scope, loop, call, name)] if call is not None else []
    if not names or len(names) < len(others) or None in ways:
        return None
    told = list(dict.fromkeys(way for way in ways if way))
    return RareReads(names, f"read {' and '.join(told)}" if told else "read nowhere")


def _binding(scope: ast.AST, line: int) -> tuple[ast.Call | None, list[ast.expr]]:
    """The call on a line, and what its results are bound to."""
    on_line = set(map(id, calls_on(scope, line)))
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and id(node.value) in on_line:
            return node.value, [leaf for target in node.targets for leaf in _leaves(target)]
    return None, []


def _leaves(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _leaves(element)
    else:
        yield target


def _ways(scope: ast.AST, loop: ast.For | ast.While, call: ast.Call, name: str) -> Iterator[str | None]:
    """Of each place that reads a name: how it is read rarely; None where that may be in each iteration."""
    reads = (node for node in ast.walk(scope) if isinstance(node, ast.Name | ast.Attribute) and last_name(node) == name)
    for node in reads:
        if not isinstance(node.ctx, ast.Load) or holds(call, node.lineno):
            continue
        rare = [one for one in _rare_parts(loop) if any(holds(inner, node.lineno) for inner in one.body)]
        if rare:
            yield f"where {ast.unparse(rare[0].test)}, at line {rare[0].lineno}"
        elif node.lineno > (loop.end_lineno or 0) and isinstance(node, ast.Name):
            yield "behind the loop"
        else:
            yield None


def _rare_parts(loop: ast.For | ast.While) -> Iterable[ast.If]:
    for node in ast.walk(loop):
        tests = ast.walk(node.test) if isinstance(node, ast.If) else ()
        if isinstance(node, ast.If) and any(
            isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) for one in tests
        ):
            yield node
