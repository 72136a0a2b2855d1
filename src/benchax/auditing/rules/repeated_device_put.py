"""Finds lines that put the same array on the device again and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, rule
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
    for line in sorted(host["puts"], key=lambda line: -line["elapsed_s"]):
        # The first time it has to be put there; an array that is overwritten in place is other data.
        if line["repeats"] >= OFTEN:
            yield _finding(line)


def _finding(line: dict[str, Any]) -> Finding:
    by, what, repeats, put = line["by"], line["what"], int(line["repeats"]), int(line["count"])
    total, elapsed_s = int(line["size_bytes"]), float(line["elapsed_s"])
    made = f", {count(line['copies_on_host'])} times in an array that was made anew" if line["copies_on_host"] else ""
    return repeated_device_put.finding(
        f"{by} puts the same {what} on the device {count(repeats + 1)} times",
        [
            (
                f"{count(repeats)} of {count(put)} times it had the contents of the time before, as far as a sample of "
                f"it tells{made}: {size(total)}"
            ),
            f"the host spent {seconds(elapsed_s)} in these, in the whole run",
        ],
        "Put it there once, before the loop, and keep what that returns: the array on the device can be given to every "
        "call.",
        where=where_of(str(line["where"])),
        gain=Gain(f"estimated: {seconds(elapsed_s)} of this run, which the host spent in them"),
        severity="info" if total < SMALL_BYTES else None,
    )
