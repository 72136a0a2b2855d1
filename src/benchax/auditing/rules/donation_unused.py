"""Finds arguments that were donated in vain: no output reuses their memory."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import size

LARGE_BYTES, TINY_BYTES = 1 << 20, 1 << 10
"""Below the first size, nothing significant is lost: for example, a batch in addition to a model whose every argument
is donated. Below the second, such as a key or a counter, the rule reports nothing."""


@rule("donation-unused", "does each donated argument lend its memory to an output?", "warning")
def donation_unused(e: Evidence) -> Iterable[Finding]:
    donation = e.inspection.donation
    if donation is None:
        raise NotMeasured(e.inspection.why_absent("donation") or "it is not told what is donated")
    if not donation.arguments:
        raise NotApplicable("it donates no argument")
    unknown = [a for a in donation.arguments if a.is_aliased is None]
    unused = [a for a in donation.arguments if a.is_aliased is False]
    if not unused:
        if unknown:
            raise NotMeasured(unknown[0].why_not or "it is not told which donated arguments were used")
        return
    lost = sum(a.size_bytes for a in unused)
    if lost < TINY_BYTES:
        return
    seen = list_some([f"{a.path} {a.spec}, {size(a.size_bytes)}: {a.why_not}" for a in unused])
    seen.append(f"donated were {size(donation.asked_bytes)}, {size(lost)} of them in vain")
    yield donation_unused.finding(
        f"{len(unused)} of {len(donation.arguments)} donated arrays are not reused",
        seen,
        "Give an output the shape, dtype and sharding of the argument, or do not donate it: the caller loses the "
        "array either way where a backend frees it, and memory is not saved.",
        where=e.def_where,
        severity="info" if lost < LARGE_BYTES else None,
    )
