"""Finds `jax.jit` of a function that is made anew in each iteration or in each call: it is compiled each time."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.syntax import (
    Loop,
    calls,
    holds,
    innermost_loop,
    jits_of_new_functions,
    kind_of,
    loops_around,
    own_or_called,
    scopes_around,
    tree_of,
    where_of,
)
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.results.watch import Compile
from benchax.units import seconds

OFTEN = 2
"""Recompiles for a new function object of one place."""
ADVICE = (
    "Make the function once, call jax.jit on it once outside of the loop, and pass what changes as an argument: JAX "
    "keeps what it compiled by the function object, and a lambda, a partial or an inner def is a new one each time."
)


@rule("jit-in-loop", "is a function jitted anew in each iteration of a loop?", "warning", of="both")
def jit_in_loop(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    told: set[Where] = set()
    unseen: NotMeasured | None = None
    try:
        for finding in _seen_running(e):
            told |= {finding.where} if finding.where else set()
            yield finding
    except NotMeasured as error:  # it cannot be called; its source can be read all the same
        unseen = error
    yield from (finding for finding in _seen_in_source(e) if finding.where not in told)
    if unseen is not None:
        raise unseen


def _seen_running(e: Evidence | ProgramEvidence) -> Iterator[Finding]:
    by_place: dict[tuple[str, str | None], list[Compile]] = {}
    for c in e.watch.recompiles:
        if any(reason.kind == "new function" for reason in c.reasons):
            by_place.setdefault((c.function, c.defined), []).append(c)
    for (function, _), compiles in by_place.items():
        if len(compiles) >= OFTEN:
            lost_s = sum(c.total_s for c in compiles)
            where, how = _made_at(where_of(compiles[-1].where), where_of(compiles[-1].defined))
            first = f"{len(compiles) + 1} function objects called {function}, compiled one by one"
            yield jit_in_loop.finding(
                f"{function} is made and jitted anew, and compiled each time",
                [f"{first}; all but the first took {seconds(lost_s)}, by JAX's own clock", *how],
                ADVICE,
                where=where,
                gain=Gain(f"estimated: {seconds(lost_s)} of this run, if it is made once"),
            )


def _seen_in_source(e: Evidence | ProgramEvidence) -> Iterator[Finding]:
    # Inside a jitted function the loop runs while tracing, and what it jits is part of one program.
    if isinstance(e, ProgramEvidence) or e.is_jitted or e.source is None:
        return
    told: set[int] = set()
    for loop in (node for node in ast.walk(e.source.tree) if isinstance(node, Loop)):
        for call in jits_of_new_functions(loop):
            if call.lineno not in told:
                told.add(call.lineno)
                yield jit_in_loop.finding(
                    f"jits a new function in each iteration of the {kind_of(loop)} at line {loop.lineno}",
                    [
                        f"line {call.lineno}: {ast.unparse(call)[:100]}",
                        "seen in the source; the calls did not show it",
                    ],
                    ADVICE,
                    where=(e.source.file, call.lineno),
                    severity="info",
                )


def _made_at(called: Where | None, defined: Where | None) -> tuple[Where | None, list[str]]:
    """The line of the jax.jit behind a call, and a sentence about it; that of the `def` that it decorates, where none
    is called."""
    tree = tree_of(called[0]) if called else None
    if called is None or tree is None:
        return called, []
    # From the inside out: the loop that calls it may lie in the function that makes it.
    around = [node for node in ast.walk(tree) if isinstance(node, Loop | ast.FunctionDef) and holds(node, called[1])]
    around.sort(key=lambda node: (node.end_lineno or 0) - node.lineno)
    jits = next((found for node in around if (found := list(jits_of_new_functions(node)))), [])
    near = min(jits, key=lambda call: abs(call.lineno - called[1]), default=None)
    if near is None:
        made = _making_call(tree, defined, called) if defined is not None and defined[0] == called[0] else None
        how = [f"made by the call at line {made}"] if made is not None else []
        where = (called[0], made) if made is not None else own_or_called(defined, called)
        return where, [*how, f"called at line {called[1]}"]
    loop = innermost_loop(tree, near.lineno)
    inside = f"in the {kind_of(loop)} at line {loop.lineno}" if loop else "in each call of the function around it"
    return (called[0], near.lineno), [f"line {near.lineno}, {inside}: {ast.unparse(near)[:100]}"]


def _making_call(tree: ast.AST, defined: Where, called: Where) -> int | None:
    """The line of the one call in a loop of the function that makes another, defined inside of it, and returns it. None
    where it calls that itself: then its maker is no more than a function with a jit in it."""
    around = [scope for scope in scopes_around(tree, defined[1]) if scope.lineno < defined[1]]
    if around and holds(around[0], called[1]):
        return None
    makers = [scope.name for scope in around if isinstance(scope, ast.FunctionDef)]
    lines = {call.lineno for name in makers[:1] for call in calls(tree, name) if loops_around(tree, call.lineno)}
    return lines.pop() if len(lines) == 1 else None
