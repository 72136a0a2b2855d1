"""Finds Python that decides by the value of an argument, which is not known while JAX traces."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.measuring.diagnosis import user_line
from benchax.measuring.tracer_errors import TracerError, explain
from benchax.results.audit import Finding, Where


@rule("branch-on-value", "does Python decide by the value of an argument?", "error")
def branch_on_value(e: Evidence) -> Iterable[Finding]:
    is_jitted = e.is_jitted
    if e.failure is None:
        return
    explained = explain(e.error) if e.error is not None else None
    if e.error is None or explained is None:
        raise NotApplicable(f"it does not {e.failure.stage}, for another reason: {e.failure.message}")
    where = where_of(user_line(e.error)) or e.def_where
    node = _statement(where) if explained.use == "value" else None
    line = linecache.getline(*where).strip() if where else ""
    seen = [f"line {where[1]}: {line}"] if where and line else []
    seen.append(f"{type(e.error).__name__}: {str(e.error).strip().splitlines()[0]}")
    yield branch_on_value.finding(
        _title(explained, node),
        seen,
        f"{_inside(node)} {e.failure.advice}".strip(),
        where=where,
        severity="error" if is_jitted else "warning",
    )


def _title(explained: TracerError, node: ast.AST | None) -> str:
    what = _what(node) or explained.expression or "a Python operation"
    if explained.use == "selection":
        return f"{what} selects a number of elements that is not known while tracing"
    argument = explained.argument.removeprefix("the ")
    argument = "an argument" if argument == "argument" else argument
    needed = "a size from the value of" if explained.use == "size" else "the value of"
    return f"{what} needs {needed} {argument}, which is not known while tracing"


def _statement(where: Where | None) -> ast.stmt | ast.IfExp | None:
    """The smallest statement that decides on this line, else the smallest at all."""
    tree = tree_of(where[0]) if where else None
    if where is None or tree is None:
        return None
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.stmt | ast.IfExp) and holds(n, where[1])]
    own = [n for n in nodes if n.lineno == where[1] and isinstance(n, ast.If | ast.While | ast.For | ast.IfExp)]
    return min(own or nodes, key=lambda n: (n.end_lineno or 0) - n.lineno, default=None)


def _what(node: ast.AST | None) -> str:
    return next((what for kinds, what, _ in _BY_NODE if isinstance(node, kinds)), "")


def _inside(node: ast.AST | None) -> str:
    return next((advice for kinds, _, advice in _BY_NODE if isinstance(node, kinds)), "")


_BY_NODE = (
    (ast.While, "while", "Here: jax.lax.while_loop(condition, body, state)."),
    (ast.For, "the loop", "Here: jax.lax.fori_loop(0, n, body, state)."),
    ((ast.If, ast.IfExp), "if", "Here: jnp.where(condition, a, b), or jax.lax.cond where only one side may run."),
    (ast.Assert, "assert", "Here: leave the check out of the traced function, or use jax.experimental.checkify."),
)
