"""Finds programs that send operation after operation from a line that runs again and again."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import seconds

MANY = 100
"""Operations from one line. Setting up a model takes some, too, each once."""
MANY_INSIDE = 1000
"""The same of a line for which a package sends them: one call of it, as to set up a sampler, may take hundreds."""
BY_FAR = 5.0
"""So many operations for each call of a jitted function are worth a warning."""


@rule("eager-operations", "are operations sent one at a time?", "warning", of="program")
def eager_operations(e: ProgramEvidence) -> Iterable[Finding]:
    calls = e.facts["calls"]
    if not calls["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    if not calls["jitted"] + calls["eager"]:
        raise NotMeasured("no call was seen")
    # Less than one for each step is what a program does now and then, such as reading or making a key.
    least = max(MANY, calls["jitted"])
    inside = dict(calls.get("eager_inside", ()))
    lines = [
        (where, n)
        for where, n in calls["eager_lines"]
        if where and n >= least and (n - inside.get(where, 0) >= least or n >= MANY_INSIDE)
    ]
    if not lines:
        return
    compiled = e.watch.eager
    seen = [f"{n} from {where}" for where, n in lines]
    within = f"in the {seconds(calls['seen_s'])} in which calls were counted"
    seen.append(f"{calls['eager']} operations {within}, and calls of jitted functions: {calls['jitted']}")
    seen.append(f"programs for them: {len(compiled)}, compiled in {seconds(sum(c.total_s for c in compiled))}")
    # By number and not by time: counting keeps calls off JAX's fast path, and each takes ten times as long meanwhile.
    yield eager_operations.finding(
        f"sends operations one at a time: {lines[0][1]} from one line",
        seen,
        "Put the line into a function under jax.jit, best the same one that computes what it works on: "
        "operations then become one program, with one call and no arrays in between.",
        where=where_of(lines[0][0]),
        severity="warning" if calls["eager"] >= BY_FAR * calls["jitted"] else "info",
    )
