"""Finds whole derivatives that are taken in the dearer mode: forward for few outputs, reverse for few inputs."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.dataflow import bodies
from benchax.auditing.derivatives import WholeDerivative, where_made, whole_derivatives
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.traced import closed_jaxpr
from benchax.auditing.work import count_operations
from benchax.results.audit import Finding, Where
from benchax.units import count

MOST_PER_PASS = 5
"""A gradient costs at most so many evaluations of its function (Baur and Strassen 1983; Griewank and Walther,
Evaluating Derivatives, 2nd ed., section 4.6)."""
LEAST_RATIO = 32
"""Directions for each one that the other mode takes: six times what that costs at most."""
LEAST_OPERATIONS = 1 << 20
"""Of the derivative; a smaller one is quick in either mode."""


@rule("derivative-mode", "are derivatives taken in the cheaper mode?", "warning", needs_trace_only=True)
def derivative_mode(e: Evidence) -> Iterable[Finding]:
    told: set[Where | None] = set()
    for body in bodies(closed_jaxpr(e)):
        for found in whole_derivatives(body):
            where, called = where_made(found.basis)
            is_dear = found.directions >= LEAST_RATIO * max(1, found.per_direction)
            if is_dear and where not in told and count_operations(found.steps) >= LEAST_OPERATIONS:
                told.add(where)
                yield _finding(e, found, where, called)


def _finding(e: Evidence, found: WholeDerivative, where: Where | None, called: Where | None) -> Finding:
    n, m = found.directions, max(1, found.per_direction)
    many, few, mode = ("inputs", "outputs", "forward") if found.is_forward else ("outputs", "inputs", "reverse")
    few = few if m > 1 else few[:-1]
    other = "reverse" if found.is_forward else "forward"
    done = count_operations(found.steps)
    seen = [
        (
            f"{n} directions are pushed through, one for each of the {many}, where {other} mode takes {count(m)}: "
            f"{count(done)} operations, counted from the shapes"
        ),
        f"in reverse mode each costs at most {MOST_PER_PASS} evaluations of the function, and memory for what it keeps"
        if found.is_forward
        else "in forward mode each costs about two evaluations of the function",
        "gain not measured, because the function that is differentiated is not known apart from this one",
    ]
    if called is not None and called != where:
        seen.append(f"called at {called[0]}:{called[1]}")
    return derivative_mode.finding(
        f"differentiates {m} {few} by {n} {many} in {mode} mode"
        if found.is_forward
        else f"differentiates {n} {many} by {m} {few} in {mode} mode",
        seen,
        _advise(found),
        where=where or e.def_where,
    )


def _advise(found: WholeDerivative) -> str:
    if not found.is_forward:
        return "Use jax.jacfwd in place of jax.jacrev (jax.jacobian): it takes one pass for each input."
    if found.per_direction > 1:
        return "Use jax.jacrev in place of jax.jacfwd: it takes one pass for each output."
    return "Use jax.grad in place of jax.jacfwd (jax.jacrev for an output that is no scalar): one pass for all inputs."
