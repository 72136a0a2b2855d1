"""Finds loops that spend their time in Python and NumPy between the calls of compiled functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.source_files import without_folders
from benchax.units import count, percent, seconds

OFTEN = 10
LEAST_SHARE, LEAST_S = 0.25, 0.25
"""Of the time between calls, and altogether."""
LARGE_SHARE = 0.5
"""With less it is an info: the host may well have its share of the work, as one that simulates data."""
COMMON = 0.6
"""Of the host's time: a line beneath which so much of it is spent."""
ADVICE = (
    "Let the host do it while the device computes: prepare the next batch in a thread, or in other processes, before "
    "the result of this one is asked for. Or do it once, before the loop; for all rows at once in NumPy instead of one "
    "after another in Python; or inside of the compiled function, in jax.numpy; in place of an optimizer or solver of "
    "SciPy by one that is written in JAX (optax.lbfgs, optimistix, diffrax)."
)


@rule("host-between-calls", "does a loop spend its time in compiled functions?", "warning", of="program")
def host_between_calls(e: ProgramEvidence) -> Iterable[Finding]:
    if "host_work" not in e.facts or not e.facts["calls"]["is_seen"]:
        raise NotMeasured("what the program does between its calls was not noted")
    lines = [line for line in e.facts["host_work"] if line["count"] >= OFTEN]
    if not lines:
        raise NotApplicable(f"no line was seen to call compiled functions {OFTEN} times")
    elapsed_s = sum(line["elapsed_s"] for line in e.facts["host_work"])
    host_s = sum(line["host_s"] for line in lines)
    if host_s >= max(LEAST_S, LEAST_SHARE * elapsed_s):
        yield _finding(lines, host_s, elapsed_s)


def _finding(lines: Sequence[Mapping[str, Any]], host_s: float, elapsed_s: float) -> Finding:
    stacks = [(tuple(stack), s) for line in lines for stack, s in line["stacks"]]
    path = _common_path(stacks)
    inner = _by_line((stack[-1], s) for stack, s in stacks)
    calls, share = sum(line["count"] for line in lines), percent(host_s / elapsed_s)
    told = [f"{seconds(s)} at {without_folders(place)}" for place, s in inner]
    sampled = "by samples of the main thread in which JAX was not on its stack"
    return host_between_calls.finding(
        f"the host works for {share} of the time between calls",
        [
            f"{seconds(host_s)} of {seconds(elapsed_s)} before {count(calls)} calls, {sampled}",
            *list_some(told, what="lines"),
            *([f"called from {' < '.join(map(without_folders, reversed(path[:-1])))}"] if path[:-1] else []),
        ],
        ADVICE,
        where=where_of(path[-1]),
        gain=Gain(f"estimated: at most {share} of the loop, {seconds(host_s)} while calls were counted", host_s),
        severity="info" if host_s < LARGE_SHARE * elapsed_s else None,
    )


def _common_path(stacks: Sequence[tuple[tuple[str, ...], float]]) -> tuple[str, ...]:
    """From the outermost line inwards, as long as most of the time is spent beneath one line."""
    least, path = COMMON * sum(s for _, s in stacks), tuple[str, ...]()
    while True:
        n = len(path)
        below = _by_line((stack[n], s) for stack, s in stacks if stack[:n] == path and len(stack) > n)
        if not below or (path and below[0][1] < least):
            return path
        path = (*path, below[0][0])


def _by_line(told: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """The seconds of each, the most first."""
    found: dict[str, float] = {}
    for line, s in told:
        found[line] = found.get(line, 0.0) + s
    return sorted(found.items(), key=lambda one: -one[1])
