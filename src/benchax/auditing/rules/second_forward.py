"""Finds forward passes that are done a second time for a metric, after the update, on the same data."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.dataflow import bodies
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.forward_calls import ForwardCall, second_forwards
from benchax.auditing.forward_passes import SecondForward, find_second_forward
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr
from benchax.auditing.work import operations
from benchax.results.audit import Finding
from benchax.units import count

LEAST_SHARE, LEAST_OPERATIONS = 0.15, 1 << 22
"""Of what it stands in; four million operations take about a millisecond on one core."""


@rule("second-forward", "is each batch taken through the model once?", "warning", of="both", needs_trace_only=True)
def second_forward(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    if isinstance(e, ProgramEvidence):
        yield from _of_calls(e)
        return
    for body in bodies(closed_jaxpr(e)):
        found = find_second_forward(body)
        if found is not None and found.operations >= max(LEAST_OPERATIONS, LEAST_SHARE * found.total):
            yield _finding(e, found)


def _finding(e: Evidence, found: SecondForward) -> Finding:
    dear = sorted(found.steps, key=lambda step: -operations(step))
    before = found.where_first
    first = f"; the first time at {before[0]}:{before[1]}" if before else ""
    seen = [
        *list_some([f"again {step.name} makes {step.makes[0].spec}{step.at}" for step in dear], 3),
        (
            f"{count(found.operations)} of {count(found.total)} operations, counted from the shapes, are those of the "
            f"forward pass once more, with the updated parameters{first}"
        ),
        "they read the data of the first, are not differentiated, and reach nothing that is an input as well",
        "gain not measured, because the results differ: these are the metrics after the update",
    ]
    return second_forward.finding(
        "takes the same batch through the model a second time, only to report something",
        seen,
        "Return what is reported, or the model's outputs, beside the loss: (loss, outputs), gradient = "
        "jax.value_and_grad(f, has_aux=True)(…). These are of the parameters before the update. Or compute it every "
        "some hundred steps, in a function of its own.",
        where=found.where or e.def_where,
    )


def _of_calls(e: ProgramEvidence) -> Iterable[Finding]:
    found = second_forwards(e.log, e.programs)
    if not found:
        raise NotApplicable("no function was seen that is called with the arrays of another and does a part of it")
    for one in found:
        if one.operations >= max(LEAST_OPERATIONS, LEAST_SHARE * one.total):
            yield _of_call(one)


def _of_call(one: ForwardCall) -> Finding:
    name, other = one.name, f"{one.other} (called at {one.other_where})"
    what = "its results and the data of its call" if one.is_after else "nothing but arguments of its call"
    advice = (
        f"Let {other} return it with the gradient: jax.value_and_grad gives the loss, and with has_aux=True what else "
        "is reported."
    )
    if one.is_after:
        advice += " That is of the parameters before the update. Or report it every some hundred steps."
    return second_forward.finding(
        f"calls {name} with the batch that {one.other} takes through the model as well",
        [
            f"{one.count} calls of {name} were given {what}, of those of {other} that were seen",
            f"{name} does what {other} does before its backward pass, at the same lines",
            f"{count(one.operations)} of {count(one.total)} operations of both, counted from the shapes",
        ],
        advice,
        where=where_of(one.where),
        related=[("the other call", where_of(one.other_where))],
        severity="info" if one.is_after else None,
    )
