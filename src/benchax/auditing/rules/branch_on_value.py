"""Finds Python that decides by the value of an argument, which is not known while JAX traces."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.measuring.diagnosis import user_line
from benchax.results.audit import Finding, Where

_ARGUMENT = re.compile(r"depends on the values? of the arguments? (.+?)\.?\s*$", re.MULTILINE)


@rule("branch-on-value", "does Python decide by the value of an argument?", "error")
def branch_on_value(e: Evidence) -> Iterable[Finding]:
    is_jitted = e.is_jitted
    if e.failure is None:
        return
    # The sentence of measuring/diagnosis.py for every kind of this error.
    if e.error is None or "not known while tracing" not in e.failure.advice:
        raise NotApplicable(f"it does not {e.failure.stage}, for another reason: {e.failure.message}")
    where = where_of(user_line(e.error)) or e.def_where
    named = _ARGUMENT.search(str(e.error))
    argument = f"argument {named[1]}" if named else "an argument"
    node = _statement(where)
    line = linecache.getline(*where).strip() if where else ""
    seen = [f"line {where[1]}: {line}"] if where and line else []
    seen.append(f"{type(e.error).__name__}: {str(e.error).strip().splitlines()[0]}")
    yield branch_on_value.finding(
        f"{_what(node)} needs the value of {argument}, which is not known while tracing",
        seen,
        f"{_inside(node)} {e.failure.advice}",
        where=where,
        severity="error" if is_jitted else "warning",
    )


def _statement(where: Where | None) -> ast.stmt | ast.IfExp | None:
    """The smallest statement that decides on this line, else the smallest at all."""
    tree = tree_of(where[0]) if where else None
    if where is None or tree is None:
        return None
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.stmt | ast.IfExp) and holds(n, where[1])]
    own = [n for n in nodes if n.lineno == where[1] and isinstance(n, ast.If | ast.While | ast.For | ast.IfExp)]
    return min(own or nodes, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)


def _what(node: ast.AST | None) -> str:
    return next((what for kinds, what, _ in _BY_NODE if isinstance(node, kinds)), "a Python operation")


def _inside(node: ast.AST | None) -> str:
    return next((advice for kinds, _, advice in _BY_NODE if isinstance(node, kinds)), "")


_BY_NODE = (
    (ast.While, "while", "Here: jax.lax.while_loop(condition, body, state)."),
    (ast.For, "the loop", "Here: jax.lax.fori_loop(0, n, body, state)."),
    ((ast.If, ast.IfExp), "if", "Here: jnp.where(condition, a, b), or jax.lax.cond where only one side may run."),
    (ast.Assert, "assert", "Here: leave the check out of the traced function, or use jax.experimental.checkify."),
)
