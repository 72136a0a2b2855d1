"""Finds callbacks from compiled code into Python."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from benchax.auditing.dataflow import bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, flow
from benchax.experiments.rewriting import Rewritten, Without
from benchax.program.jaxpr import count_primitives, equations, nested_in, user_line
from benchax.results.audit import Finding
from benchax.results.inspection import Primitive
from benchax.source_files import owner_of

CALLBACKS = ("debug_callback", "debug_print", "pure_callback", "io_callback")

COSTS = "Each call waits for Python, copies its operands to the host, and takes the slow way to start the program. "
OF_USER = "Take debugging output out of what runs often; write the rest in jax.numpy, or do it outside of jit."
OF_LIBRARY = (
    "The package may have a switch for it (checks that can be turned off, verbose=False); the line named here is the "
    "one of yours that asks for it."
)


@rule("host-callback", "does compiled code call Python?", "warning", needs_trace_only=True)
def host_callback(e: Evidence) -> Iterable[Finding]:
    callbacks = [p for p in count_primitives(list(equations(closed_jaxpr(e)))) if p.name in CALLBACKS]
    steps = [step for body in bodies(closed_jaxpr(e)) for step in body.program.steps if step.name in CALLBACKS]
    library, is_conditional = _library(steps), not _always(closed_jaxpr(e))
    # Errors that a package would raise: nobody who calls it can change anything, and whether they run is not known.
    if not callbacks or (library and is_conditional):
        return
    seen = [_describe(p) for p in callbacks]
    count = sum(p.count for p in callbacks)
    # Only in the outermost level, and without results, can they be left out.
    silent = [step for step in flow(closed_jaxpr(e)).steps if step.name in CALLBACKS and not step.makes]
    result = _try_without(e, is_all=len(silent) == count) if silent else None
    if result is not None:
        seen.append(result.sentence)
    if len(silent) < count:
        returning = sum(bool(equation.outvars) for equation in _callbacks(closed_jaxpr(e)))
        seen += [f"gain not measured of {returning}: they give results, which the rest may need"] * bool(returning)
        hidden = count - returning - len(silent)
        seen += [f"gain not measured of {hidden}: they stand in loops or branches"] * (hidden > 0)
    if is_conditional:
        seen.append("all of them stand in branches, as of errors that are raised; whether they run is not known")
    # Beside errors that packages would raise, the user's own is what can be changed.
    lines = sorted((step.line for step in steps if step.line), key=lambda line: not _is_users(line))
    line = lines[0] if lines else ""
    if library:
        seen.append(f"all of them stand in an installed package: {library}")
    yield host_callback.finding(
        f"{count} × Python called from compiled code",
        seen,
        COSTS + (OF_LIBRARY if library else OF_USER),
        where=where_of(line) or e.def_where,
        gain=result.gain if result else None,
        # What stands in a package is for its authors to change: who calls it can only look for a switch.
        severity="info" if is_conditional or library else None,
    )


def _try_without(e: Evidence, *, is_all: bool) -> Tried:
    without = replace(e.plain_case, fn=Rewritten(e.plain_case.fn, Without(CALLBACKS)))
    return try_variant(e, "without them" if is_all else "without those that give no results", without)


def _library(steps: Sequence[TracedEquation]) -> str:
    """file:line of the first one in an installed package, where all of them stand in one; else empty."""
    lines = [user_line(step.equation) for step in steps]
    files = [line.rpartition(":")[0] for line in lines]
    return lines[0] if files and all(file and owner_of(file) == "package" for file in files) else ""


def _is_users(line: str) -> bool:
    return owner_of(line.rpartition(":")[0]) == "user"


def _callbacks(jaxpr: Any) -> Iterator[Any]:
    """Their equations, however deep, each where it stands."""
    return (each.equation for each in equations(jaxpr) if each.equation.primitive.name in CALLBACKS)


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
