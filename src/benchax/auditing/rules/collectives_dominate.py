"""Finds programs on several devices that send more than they compute with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import MOST_LISTED, NotApplicable, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.results.inspection import Collectives
from benchax.units import percent, size

SHARE = 0.25
"""The share of the bytes that the program reads and writes on each device."""


@rule("collectives-dominate", "do its devices mostly talk to one another?", "warning")
def collectives_dominate(e: Evidence) -> Iterable[Finding]:
    if len(e.devices) == 1:
        raise NotApplicable("there is one device")
    collectives, counts = e.inspection.collectives, e.inspection.counts
    if collectives is None:
        raise NotMeasured(e.inspection.why_absent("collectives") or "the compiled program cannot be read")
    if not collectives.calls:
        if collectives.partitions == 1:
            raise NotApplicable("the program runs on one device")
        return
    sent = collectives.bytes_per_call
    if sent is None:
        raise NotMeasured("some stand in a loop of unknown length")
    touched = counts.bytes_accessed if counts else None
    if not touched:
        raise NotMeasured("the bytes that the program reads and writes are not known")
    if sent < SHARE * touched:
        return
    yield collectives_dominate.finding(
        f"{size(sent)} per call come from other devices, {percent(sent / touched)} of what is read and written",
        [*_describe(collectives), "time in them was not measured: benchax profile shows it"],
        "Shard along axes that are not summed over, so that less has to be collected; or give each device more "
        "work between two collectives.",
        where=e.def_where,
    )


def _describe(collectives: Collectives) -> Iterable[str]:
    """By kind, those that move most first."""
    moved: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for call in collectives.calls:
        moved[call.opcode] += call.size_bytes * (call.trips or 1)
        times[call.opcode] += call.trips or 1
    for opcode, total in moved.most_common(MOST_LISTED):
        yield f"{times[opcode]} × {opcode}: {size(total)} on each of {collectives.partitions} devices"
