"""Rules about values and settings outside of a compiled function: changed after they were compiled in, or left on."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recorder.hooks import DEBUGGING
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.results.audit import Finding
from benchax.units import count


@rule("debug-settings", "are JAX's settings for debugging off?", "warning", of="program")
def debug_settings(e: ProgramEvidence) -> Iterable[Finding]:
    for name, where in e.settings.items():
        variable = name.upper()
        source = "set at this line" if where else f"set by {variable}, or by an installed package"
        yield debug_settings.finding(
            f"{name} is on: {DEBUGGING[name]}",
            [f"it was on when the program ended, {source}", "gain not measured: the program runs once, as it is"],
            f"Turn it off once the mistake is found. To look for one again: {variable}=1 python train.py.",
            where=where_of(where) if where else None,
        )


@rule("stale-value", "is all that changes passed as an argument?", "warning", of="program")
def stale_value(e: ProgramEvidence) -> Iterable[Finding]:
    _ = e.lines  # raises if calls are not seen
    told = set[tuple[str, str]]()
    for event in e.log.of("stale"):
        name, change, call = event.note
        if (event.by, name) in told:
            continue
        told.add((event.by, name))
        yield stale_value.finding(
            f"{event.by} was compiled with {name} as it was, and {name} has changed since",
            [
                f"{name} went {change}; seen at call {count(call)} of the program",
                "a compiled call runs no Python: it reads globals, closures and attributes once, when it is traced",
            ],
            f"Pass {name} to {event.by} as an argument, and return it if the function changes it. If it must be a "
            "constant of the program, jit the function again (or make it a static argument) when it changes.",
            where=where_of(event.where),
        )
