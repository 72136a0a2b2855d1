"""Finds arrays that are moved between devices, or cut in another way, in each step."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds, size

OFTEN = 5
ADVICE = (
    "Place the array once as the function wants it: jax.device_put(x, sharding) before the loop, or give the function "
    "that makes it out_shardings (or a jax.lax.with_sharding_constraint) so that its result lies there from the start."
)


@rule("resharding", "do arrays stay where they are from step to step?", "warning", of="program")
def resharding(e: ProgramEvidence) -> Iterable[Finding]:
    host, lines = e.facts.get("host"), e.facts.get("lines")
    if host is None or lines is None:
        raise NotMeasured("where arrays lie was not noted")
    for put in host["puts"]:
        if put["moves"] >= OFTEN:
            # What is new in each step, made on one device, has to be dealt out, though whoever makes it might do that.
            is_dealt_out = " over " not in put["moved_from"]
            yield resharding.finding(
                f"{put['by']} places {put['what']} anew in each step",
                [
                    f"{count(put['moves'])} times, {size(put['size_bytes'])} together",
                    f"from {put['moved_from']} to {put['moved_to']}",
                    f"the host spent {seconds(put['elapsed_s'])} in these calls; the copies may take longer",
                ],
                ADVICE,
                where=where_of(put["where"]),
                gain=Gain(f"estimated: at least {seconds(put['elapsed_s'])} of this run"),
                severity="info" if is_dealt_out else None,
            )
    for line in lines:
        moved = [(name, old, new, n) for name, old, new, n in line["moved"] if n >= OFTEN]
        if moved:
            yield resharding.finding(
                f"{line['function']} gets arguments that do not lie as it wants them",
                list_some([f"{name}: from {old} to {new}, {count(n)} times" for name, old, new, n in moved]),
                ADVICE,
                where=where_of(line["where"]),
            )
