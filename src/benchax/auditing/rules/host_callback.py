"""Finds callbacks from compiled code into Python."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr, flow, jaxpr_facts
from benchax.experiments.rewriting import Rewritten, Without
from benchax.program.jaxpr import nested_in
from benchax.results.audit import Finding
from benchax.results.inspection import Primitive

DEBUGGING = ("debug_callback", "debug_print")
CALLBACKS = (*DEBUGGING, "pure_callback", "io_callback")


@rule("host-callback", "does compiled code call Python?", "warning")
def host_callback(e: Evidence) -> Iterable[Finding]:
    jaxpr = jaxpr_facts(e)
    callbacks = [p for p in jaxpr.primitives if p.name in CALLBACKS]
    if not callbacks:
        return
    result = None
    seen = [_describe(p) for p in callbacks]
    if all(p.name in DEBUGGING for p in callbacks):
        # Only in the outermost level can they be left out.
        reachable = sum(step.name in DEBUGGING for step in flow(closed_jaxpr(e)).steps)
        if reachable == sum(p.count for p in callbacks):
            without = replace(e.plain_case, fn=Rewritten(e.plain_case.fn, Without(DEBUGGING)))
            result = try_variant(e, "without them", without)
            seen.append(result.sentence)
        else:
            seen.append("gain not measured: they stand in loops or branches")
    else:
        seen.append("gain not measured: their results are used")
    is_conditional = not _always(closed_jaxpr(e))
    if is_conditional:
        seen.append("all of them stand in branches, as of errors that are raised; whether they run is not known")
    line = next((p.lines[0] for p in callbacks if p.lines), "")
    yield host_callback.finding(
        f"{sum(p.count for p in callbacks)} × Python called from compiled code",
        seen,
        "Each call waits for Python, copies its operands to the host, and takes the slow way to start the program. "
        "Take debugging output out of what runs often; write the rest in jax.numpy, or do it outside of jit.",
        where=where_of(line) or e.def_where,
        gain=result.gain if result else None,
        severity="info" if is_conditional else None,
    )


def _always(jaxpr: Any) -> int:
    """Callbacks outside of branches: those that run whenever the program does."""
    count = 0
    for equation in jaxpr.eqns:
        count += equation.primitive.name in CALLBACKS
        # equinox's error_if stands in a branch that only an error takes: to warn of diffrax for it was a false alarm.
        if equation.primitive.name != "cond":
            count += sum(map(_always, nested_in(equation)))
    return count


def _describe(p: Primitive) -> str:
    loops = f", {p.in_loops} of them in loops" if p.in_loops else ""
    at = f", at {p.lines[0]}" if p.lines else ""
    return f"{p.count} × {p.name}{loops}{at}"
