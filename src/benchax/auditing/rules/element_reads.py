"""Finds lines that take an array of JAX apart, element by element, between the steps of a program."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds

MANY = 1000
"""Operations of one line."""
PER_CALL = 20.0
"""The same for each call of a jitted function. `x[i]` takes two or three, and a few arrays of a batch as many again."""


@rule("element-reads", "are arrays read as wholes?", "warning", of="program")
def element_reads(e: ProgramEvidence) -> Iterable[Finding]:
    noted, calls = e.facts.get("eager_arrays"), e.facts["calls"]
    if noted is None or not calls["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    for where, n in noted["taken"]:
        if n >= max(MANY, PER_CALL * calls["jitted"]):
            yield element_reads.finding(
                f"takes parts of arrays one at a time: {count(n)} operations from one line",
                [
                    f"in the {seconds(calls['seen_s'])} in which {count(calls['jitted'])} calls of jitted ones ran",
                    "each x[i] is a program that is sent to the device, and an array of its own",
                ],
                "Read the array once, numpy.asarray(x) or jax.device_get(x), and take its elements from that; or keep "
                "it as one array, and take what is needed of it in a jitted function.",
                where=where_of(where),
            )
