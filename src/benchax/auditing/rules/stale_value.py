"""Finds compiled functions that go on with what they read when they were traced, after it has changed."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count


@rule("stale-value", "is all that changes passed as an argument?", "warning", of="program")
def stale_value(e: ProgramEvidence) -> Iterable[Finding]:
    if "stale" not in e.facts or not e.facts["calls"]["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    for value in e.facts["stale"]:
        name, function = value["name"], value["function"]
        yield stale_value.finding(
            f"{function} was compiled with {name} as it was, and {name} has changed since",
            [
                f"{name} went {value['change']}; seen at call {count(value['call'])} of the program",
                "a compiled call runs no Python: it reads globals, closures and attributes once, when it is traced",
            ],
            f"Pass {name} to {function} as an argument, and return it where the function changes it. Where it must be "
            "a constant of the program, jit the function again (or make it a static argument) when it changes.",
            where=where_of(value["where"]),
        )
