"""Whole derivatives in a traced program: an identity matrix whose rows are pushed through as directions.

`jax.jacfwd`, `jax.jacrev` and `jax.hessian` make the identity, and so does who writes `jax.vmap` of a `jax.jvp` by
hand. What a derivative does is known by its scope, `vmap(jvp(…))` beside that of the identity.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from benchax.auditing.bindings import calls_on
from benchax.auditing.dataflow import Body
from benchax.auditing.diagonals import is_identity
from benchax.auditing.linear import depend_linearly
from benchax.auditing.syntax import binding_of, callee_name, tree_of, where_of
from benchax.auditing.traced import TracedEquation, TracedValue
from benchax.auditing.work import elements
from benchax.results.audit import Where

MOVES = ("convert_element_type", "neg", "reshape", "split", "squeeze", "transpose")
"""What may lie between an identity and a derivative, or between its last operation and what reads it."""
DERIVATIVE = "jvp("
"""Part of the scope of an operation that a derivative has made."""
FORWARD, REVERSE = "vmap(jvp(", "vmap(transpose("
"""How the scope of a derivative along many directions begins."""
MAKERS = ("hessian", "jacfwd", "jacrev", "jacobian")
"""Functions of JAX that make whole derivatives."""


@dataclass(frozen=True)
class WholeDerivative:
    """A derivative along all rows of an identity."""

    basis: TracedEquation
    directions: int
    is_forward: bool
    per_direction: int
    """Elements of what comes out of it for each direction."""
    steps: tuple[TracedEquation, ...]
    """Those that depend on the directions."""


def whole_derivatives(body: Body) -> Iterator[WholeDerivative]:
    """Those that are linear in their directions as far as each operation tells, and nothing but derivatives."""
    for basis in body.program.steps:
        if is_identity(body, basis):
            found = _follow(body, basis)
            if found is not None:
                yield found


def _follow(body: Body, basis: TracedEquation) -> WholeDerivative | None:
    waiting, inside = {id(basis.makes[0])}, set[int]()
    """Values that the directions are in before the derivative, and in it."""
    exits, steps, modes = dict[int, TracedValue](), list[TracedEquation](), set[str]()
    for step in body.program.steps:
        depends = [id(value) in waiting or id(value) in inside for value in step.reads]
        if not any(depends):
            continue
        here = scope_behind(basis, step)
        mode = next((mode for mode in (FORWARD, REVERSE) if here.startswith(mode)), None)
        if mode is not None:
            makes = depend_linearly(step, depends)
            if makes is None:
                return None
            modes.add(mode if any(id(value) in waiting for value in step.reads) else "")
            steps.append(step)
            inside |= {id(value) for value, one in zip(step.makes, makes, strict=True) if one}
        elif step.name in MOVES and id(step.reads[0]) in waiting:
            waiting |= {id(value) for value in step.makes}
        else:
            exits |= {id(value): value for value in step.reads if id(value) in inside}
    exits |= {id(value): value for value in body.program.outputs if id(value) in inside}
    rows, modes = basis.makes[0].shape[0], modes - {""}
    if len(modes) != 1 or not exits or not rows:
        return None
    per_direction = sum(elements(value) for value in exits.values()) // rows
    return WholeDerivative(basis, rows, modes == {FORWARD}, per_direction, tuple(steps))


def scope_behind(basis: TracedEquation, step: TracedEquation) -> str:
    """The scope of a step from that of an identity on; empty where it does not stand in it."""
    around = basis.scope.rstrip(")")
    return step.scope[len(around) :].lstrip("/") if step.scope.startswith(around) else ""


def where_made(basis: TracedEquation) -> tuple[Where | None, Where | None]:
    """The line that makes the derivative and the line that calls it, which are often one.

    JAX tells only of the call. The line that binds what is called there may make it, `slope = jax.jacfwd(cost)`, else
    the only line of the file that names a function which makes derivatives.
    """
    called = where_of(basis.line)
    if called is None:
        return None, None
    lines = _naming_lines(called[0])
    # A variable may be called as a function of JAX: `jacobian = jax.jacrev(residuals)`.
    named = _bound_on(*called) & lines or ({called[1]} & lines) or lines
    return (called[0], named.pop()) if len(named) == 1 else called, called


def _bound_on(file: str, line: int) -> set[int]:
    """Lines that bind the functions which are called on a line."""
    tree = tree_of(file)
    found = [binding_of(tree, callee_name(call), line) for call in calls_on(tree, line)] if tree is not None else []
    return {one.lineno for one in found if one is not None}


def _naming_lines(file: str) -> set[int]:
    """Lines of a file that name a function of JAX that makes whole derivatives."""
    tree = tree_of(file)
    nodes = ast.walk(tree) if tree is not None else ()
    return {
        node.lineno
        for node in nodes
        if getattr(node, "attr", getattr(node, "id", "")) in MAKERS and isinstance(node, ast.Attribute | ast.Name)
    }
