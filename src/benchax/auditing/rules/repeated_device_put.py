"""Finds lines that put the same array on the device again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds, size

OFTEN = 5
SMALL_BYTES = 1 << 16
"""Altogether; below that it is an info."""


@rule("repeated-device-put", "is data that stays the same put on the device once?", "warning", of="program")
def repeated_device_put(e: ProgramEvidence) -> Iterable[Finding]:
    host = e.facts.get("host")
    if host is None:
        raise NotMeasured("what the program puts on devices was not noted")
    by_line: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for put in sorted(host["puts"], key=lambda put: -put["size_bytes"]):
        # The first time it has to be put there; an array that is overwritten in place is other data.
        if put["repeats"] >= OFTEN:
            by_line.setdefault((put["where"], put["by"]), []).append(put)
    for puts in sorted(by_line.values(), key=lambda puts: -sum(put["elapsed_s"] for put in puts)):
        yield _finding(puts)


def _finding(puts: list[dict[str, Any]]) -> Finding:
    """Of all arrays that one line puts there, the largest first."""
    by, where = puts[0]["by"], puts[0]["where"]
    total, elapsed_s = sum(put["size_bytes"] for put in puts), sum(put["elapsed_s"] for put in puts)
    more = f" and {len(puts) - 1} more" if len(puts) > 1 else ""
    return repeated_device_put.finding(
        f"{by} puts the same {puts[0]['what']}{more} on the device {count(puts[0]['repeats'] + 1)} times",
        [
            *list_some([_describe(put) for put in puts]),
            f"the host spent {seconds(elapsed_s)} in these, in the whole run",
        ],
        "Put it there once, before the loop, and keep what that returns: the array on the device can be given to every "
        "call.",
        where=where_of(where),
        gain=Gain(f"estimated: {seconds(elapsed_s)} of this run, which the host spent in them"),
        severity="info" if total < SMALL_BYTES else None,
    )


def _describe(put: dict[str, Any]) -> str:
    new = f", {count(put['copies_on_host'])} times in an array that was made anew" if put["copies_on_host"] else ""
    often = f"{count(put['repeats'])} of {count(put['count'])} times"
    same = f"{put['what']} had the contents of the time before, as far as a sample of it tells"
    return f"{often} {same}{new}: {size(put['size_bytes'])}"
