"""Finds loops, whose bodies XLA's own cost analysis counts once."""

from __future__ import annotations

import linecache
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.results.inspection import Counts
from benchax.units import count, number

LEAST_RATIO = 1.1


@rule("scan-flops", "does XLA's FLOP count leave out iterations of loops?", "info")
def scan_flops(e: Evidence) -> Iterable[Finding]:
    if e.why_not_called and not _asks_for_counts(e):
        raise NotApplicable("the program's file does not ask for XLA's count, by cost_analysis()")
    counts, cost = e.inspection.counts, e.inspection.xla_cost
    if counts is None or cost is None:
        raise NotMeasured(e.inspection.why_absent("counts") or "XLA tells no FLOP count")
    if not counts.loops:
        raise NotApplicable("the compiled program has no loop")
    if counts.flops is None or not cost.flops:
        raise NotMeasured("there is no FLOP count to compare with")
    # Of programs without loops both counts agree within 1 %: a tenth more is no other way of counting.
    if counts.flops < LEAST_RATIO * cost.flops:
        return
    unknown = [loop for loop in counts.loops if loop.trips is None]
    least = "at least " if unknown or not counts.is_exact else ""
    yield scan_flops.finding(
        f"XLA counts {count(cost.flops, 'FLOP')} where {least}{count(counts.flops, 'FLOP')} are done",
        [
            *list_some(_loops(counts), what="loops"),
            f"{least}{number(counts.flops / cost.flops)} times as many as cost_analysis() says",
        ],
        "Take FLOP of this program, and utilisations made of them, from benchax inspect, not from "
        "compiled.cost_analysis(), which counts the body of a loop once.",
        where=e.def_where,
    )


def _asks_for_counts(e: Evidence) -> bool:
    """Does the file of a function that belongs to a program name XLA's analysis?"""
    return e.def_where is not None and any("cost_analysis" in line for line in linecache.getlines(e.def_where[0]))


def _loops(counts: Counts) -> list[str]:
    trips = ["an unknown number of" if loop.trips is None else count(loop.trips) for loop in counts.loops]
    return [
        f"{loop.name}: {n} iterations{f' ({loop.op_name})' if loop.op_name else ''}"
        for loop, n in zip(counts.loops, trips, strict=True)
    ]
