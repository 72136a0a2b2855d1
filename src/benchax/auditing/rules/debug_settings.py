"""Finds settings of JAX that look for mistakes, which are still on when the program has ended."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.host_calls import DEBUGGING
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding


@rule("debug-settings", "are JAX's settings for debugging off?", "warning", of="program")
def debug_settings(e: ProgramEvidence) -> Iterable[Finding]:
    host = e.facts.get("host")
    if host is None:
        raise NotMeasured("the settings of the program were not noted")
    for name, where in host["settings"].items():
        variable = name.upper()
        source = "set at this line" if where else f"set by {variable}, or by an installed package"
        yield debug_settings.finding(
            f"{name} is on: {DEBUGGING[name]}",
            [f"it was on when the program ended, {source}", "gain not measured: the program runs once, as it is"],
            f"Turn it off once the mistake is found. To look for one again: {variable}=1 python train.py.",
            where=where_of(where) if where else None,
        )
