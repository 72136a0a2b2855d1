"""Finds lines that make arrays of long lists of Python numbers, again and again."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, seconds

OFTEN = 5
LONG = 1024
"""Numbers, each time: a shorter list costs about as much as any call."""


@rule("python-lists", "are arrays made of arrays, not of lists of numbers?", "warning", of="program")
def python_lists(e: ProgramEvidence) -> Iterable[Finding]:
    host = e.facts.get("host")
    if host is None:
        raise NotMeasured("what the program makes arrays of was not noted")
    for line in sorted(host["lists"], key=lambda line: -line["elapsed_s"]):
        if line["count"] >= OFTEN and line["elements"] >= LONG * line["count"]:
            elapsed = seconds(line["elapsed_s"])
            yield python_lists.finding(
                f"{line['by']} makes arrays of lists of {count(line['elements'] // line['count'])} Python numbers",
                [f"{count(line['count'])} times, in which the host spent {elapsed}: it looks at each number"],
                "Make one NumPy array of all of them before the loop (np.asarray(rows, np.float32)), choose by "
                "indexing it, and convert that: jnp.asarray(rows[chosen]).",
                where=where_of(line["where"]),
                gain=Gain(f"estimated: at most {elapsed} of this run, which the host spent in them"),
            )
