"""Finds what a function computes anew in each call of arguments that never change: a factor of a constant matrix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchax.auditing.dataflow import GRADIENT
from benchax.auditing.derivatives import FORWARD
from benchax.auditing.evidence import Evidence
from benchax.auditing.fixed_parts import UNKNOWN_TRIPS, Part, has_open_loop, parts
from benchax.auditing.input_names import name_inputs
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr
from benchax.auditing.work import DEAR
from benchax.results.audit import Finding
from benchax.units import count

LEAST_SHARE, LEAST_OPERATIONS = 0.2, 1 << 22
"""Of a call; four million operations take about a millisecond in LAPACK on one core."""


@rule("fixed-work", "is work on arguments that never change done once?", "warning", needs_trace_only=True)
def fixed_work(e: Evidence) -> Iterable[Finding]:
    closed, fixed = closed_jaxpr(e), e.repeated_inputs
    n = len(closed.in_avals)
    if not fixed or max(fixed) >= n:
        raise NotApplicable("no argument is known to be the same at each of three calls or more")
    if len(fixed) == n:
        raise NotApplicable("all arguments were the same at each call that was seen")
    found = parts(closed, fixed)
    total = sum(part.operations for part in found)
    # What is read and made element by element may be fused with what varies, and costs little more.
    dear = [part for part in found if part.fixed and part.step.name in DEAR and not _is_direction(part)]
    again = sum(part.operations for part in dear)
    if again >= max(LEAST_OPERATIONS, LEAST_SHARE * total):
        yield _finding(e, sorted(dear, key=lambda part: -part.operations), again, total)


def _is_direction(part: Part) -> bool:
    """Was it made by a derivative, backwards or along many directions? No line of the user's does that apart."""
    return GRADIENT in part.step.scope or FORWARD in part.step.scope


def _finding(e: Evidence, dear: Sequence[Part], again: float, total: float) -> Finding:
    closed = closed_jaxpr(e)
    what = [
        f"{part.step.name} makes {part.step.makes[0].spec}, {count(part.operations)} operations{part.step.at}"
        for part in dear
    ]
    names = name_inputs(e, len(closed.in_avals))
    used = sorted(frozenset[int]().union(*(part.fixed for part in dear)))
    same = [f"{names[i]} {closed.in_avals[i].str_short(short_dtypes=True)}" for i in used]
    open_loop = f", a loop of unknown length as {UNKNOWN_TRIPS} iterations" if has_open_loop(closed) else ""
    seen = [
        *list_some(what),
        f"{count(again)} of {count(total)} operations of a call, counted from the shapes{open_loop}",
        f"the same object at each call that was seen, of three or more: {', '.join(list_some(same))}",
    ]
    return fixed_work.finding(
        f"computes {dear[0].step.name} in each call of what never changes",
        seen,
        f"Compute it once, before the calls, and give the function the result, in place of "
        f"{' and '.join(list_some([names[i] for i in sorted(dear[0].fixed)]))} or beside: inside of jit nothing is "
        "kept from call to call.",
        where=where_of(dear[0].step.line) or e.def_where,
    )
