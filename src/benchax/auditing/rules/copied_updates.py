"""Finds large arrays that are copied as wholes, outside of jit, to change a part of them."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, percent, seconds, size

OFTEN = 20
FASTEST = 50e9
"""Bytes a second: one core of a CPU copies no faster, so that the share of the time is a lower bound."""
LEAST_SHARE = 0.01


@rule("copied-updates", "are large arrays changed in place?", "warning", of="program")
def copied_updates(e: ProgramEvidence) -> Iterable[Finding]:
    noted, calls = e.facts.get("eager_arrays"), e.facts["calls"]
    if noted is None or not calls["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    for where, times, copied_bytes in noted["copied"]:
        least_s = copied_bytes / FASTEST
        if times >= OFTEN and least_s >= LEAST_SHARE * calls["seen_s"]:
            share = percent(least_s / calls["seen_s"])
            yield copied_updates.finding(
                f"copies {size(copied_bytes // times)} for each update, {count(times)} times",
                [
                    f"{size(copied_bytes)} in the {seconds(calls['seen_s'])} in which calls were counted",
                    "outside of jit x.at[i].set(value) makes a new array of all of x, since the old one stays as it is",
                ],
                "Update it in a jitted function that may have its memory, jax.jit(update, donate_argnums=0): it is "
                "changed in place then. What the host fills row by row may be an array of NumPy until it is used.",
                where=where_of(where),
                gain=Gain(f"estimated: at least {share} of the time, at {size(int(FASTEST))} a second"),
            )
