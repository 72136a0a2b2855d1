"""Finds work for results that a loop reads in few iterations: metrics that are computed in each step and printed in
every hundredth."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import takewhile
from typing import Any

from benchax.auditing.dataflow import Body
from benchax.auditing.evidence import Evidence
from benchax.auditing.rare_reads import RareReads, rare_reads
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, flow
from benchax.auditing.work import count_operations, operations
from benchax.program.jaxpr import own_frames
from benchax.results.audit import Finding
from benchax.units import count, percent

OFTEN = 10
"""Calls at which its results came back."""
LEAST_SHARE, LEAST_OPERATIONS = 0.2, 1 << 18
MOST_TOLD = 3
ADVICE = (
    "Compute them in a function of their own, jitted as well, which is called where they are read. Or in the same one "
    "under jax.lax.cond, if that is not under jax.vmap, with zeros on the other side."
)


@rule("rarely-read-results", "are results read as often as they are computed?", "warning", needs_trace_only=True)
def rarely_read_results(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    carried = {result for _, result in e.carried.positions}
    if not carried or e.carried.calls < OFTEN or len(carried) == len(closed.out_avals):
        raise NotApplicable("it is no step of a loop that returns something beside what it is given back")
    reads = rare_reads(where_of(e.called_at))
    if reads is None or _may_return(e, closed):
        return
    body = Body(flow(closed))
    spare = _not_needed(body, carried)
    total, saved = count_operations(body.program.steps), count_operations(spare)
    if saved >= max(LEAST_OPERATIONS, LEAST_SHARE * total):
        yield _finding(e, reads, body, spare, (saved, total))


def _may_return(e: Evidence, closed: Any) -> bool:
    """May another result come back as well, by a way on which it becomes another array: put on a device anew, read from
    an object? An argument of its shape is another one at each call, and no result of the call before."""
    ways, at = e.carried.positions, range(len(closed.in_avals))
    given, results = {i for i, _ in ways} | e.repeated_inputs, {j for _, j in ways}
    others = {_kind(closed.in_avals[i]) for i in at if i not in given}
    return any(_kind(aval) in others for j, aval in enumerate(closed.out_avals) if j not in results and aval.shape)


def _kind(aval: Any) -> tuple[Any, Any]:
    return aval.shape, aval.dtype


def _not_needed(body: Body, outputs: Collection[int]) -> list[TracedEquation]:
    """Steps that none of these outputs depends on."""
    needed, waiting = set[int](), [body.program.outputs[i] for i in outputs if i < len(body.program.outputs)]
    while waiting:
        step = body.maker(waiting.pop())
        if step is not None and id(step) not in needed:
            needed.add(id(step))
            waiting += step.reads
    return [step for step in body.program.steps if id(step) not in needed]


def _line_in_function(body: Body, step: TracedEquation) -> str:
    """The line of the function itself that asks for a step, through whatever it calls: behind what all steps have in
    common, which is the way to the function."""
    here, every = own_frames(step.outermost), [own_frames(each.outermost) for each in body.program.steps]
    common = sum(1 for _ in takewhile(lambda frames: len(set(frames)) == 1, zip(*filter(None, every), strict=False)))
    return f"{here[common].file}:{here[common].line}" if common < len(here) else step.line


def _finding(
    e: Evidence, reads: RareReads, body: Body, spare: Sequence[TracedEquation], counts: tuple[float, float]
) -> Finding:
    """counts: operations of `spare`, and of all."""
    dear = sorted(spare, key=lambda step: -operations(step))
    what = [f"{step.name} makes {step.makes[0].spec}, {count(operations(step))} operations{step.at}" for step in dear]
    of_all = " of ".join(map(count, counts))
    return rarely_read_results.finding(
        f"{percent(counts[0] / counts[1])} of its operations are for results that are read in few steps",
        [
            f"{', '.join(list_some(reads.names))} of the call at {e.called_at}: {reads.how}",
            f"{of_all} operations of a call serve nothing else, counted from the shapes",
            *what[:MOST_TOLD],
        ],
        ADVICE,
        where=where_of(_line_in_function(body, dear[0])) or e.def_where,
    )
