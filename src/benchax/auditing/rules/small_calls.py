"""Finds lines that call a jitted function very often, with little data each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.host_feedback import loop_around, needs_own_result
from benchax.auditing.rule import Gain, rule
from benchax.auditing.rules.unawaited_timing import intervals
from benchax.auditing.syntax import innermost_loop, kind_of, tree_of, where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.units import count, seconds, size

MANY, MANY_IN_TURN = 200, 2000
"""Calls from one line: of those that could be one, and of those that each need the one before."""
DEAR_IN_TURN = 10_000
"""Calls in turn that are no mere info: starting each of them and returning to Python takes longer than what it does."""
SMALL_BYTES, TINY_BYTES = 1 << 17, 1 << 10
"""Arguments of a call that are not the same each time."""
AT_ONCE = 8
"""Calls that do not need one another, for each that needs the one before: so many individuals of a generation."""
ROUNDS = 200
APART = (
    "The calls do not need one another's results: stack what they are called with, and make one call of jax.vmap(f) "
    "on all of it, or on some hundreds at a time."
)
IN_TURN = (
    "Each call needs the result of one before it: do many of them in one program, with jax.lax.scan or "
    "jax.lax.fori_loop, and return to Python only where something has to be read or printed."
)


@rule("small-calls", "is a function called few times with much data?", "warning", of="program")
def small_calls(e: ProgramEvidence) -> Iterable[Finding]:
    if "lines" not in e.facts or not e.facts["calls"]["is_seen"]:
        raise NotMeasured("calls cannot be seen in this JAX")
    if not e.facts["calls"]["jitted"]:
        raise NotMeasured("no call of a jitted function was seen")
    for line in e.facts["lines"]:
        where = where_of(line["where"])
        most, large = (MANY_IN_TURN, TINY_BYTES) if _is_in_turn(line) else (MANY, SMALL_BYTES)
        is_small = line["count"] - _n_of_packages(line, where) >= most and line["most_bytes"] <= large
        if is_small and where is not None and not _is_timed_each(where) and not _is_answered(line, where):
            yield _finding(line, e.facts)


def _is_in_turn(line: Mapping[str, Any]) -> bool:
    return line["in_turn"] > 1 and line["count"] < AT_ONCE * line["in_turn"]


def _n_of_packages(line: Mapping[str, Any], where: Where | None) -> int:
    """Calls that a package makes in a loop of its own, which no line of the user's can batch: by itself, or by a
    function that it was given, as an objective."""
    tree = tree_of(where[0]) if where else None
    has_loop = tree is None or where is None or loop_around(tree, where[1]) is not None
    return line.get("inside", 0) + (0 if has_loop else line.get("handed", 0))


def _is_answered(line: Mapping[str, Any], where: Where) -> bool:
    """Does Python make the arguments of each call of the result of the one before? Then neither a batch nor a scan is
    what to do."""
    tree = tree_of(where[0])
    return not _is_in_turn(line) and tree is not None and needs_own_result(tree, where[1], line["function"])


def _is_timed_each(where: Where) -> bool:
    """Does the loop around a call read a clock before and after it? A benchmark makes the same call again and again."""
    tree = tree_of(where[0])
    loop = innermost_loop(tree, where[1]) if tree is not None else None
    if loop is None or tree is None:
        return False
    return any(loop.lineno < each.first <= where[1] <= each.last for each in intervals(tree))


def _finding(line: Mapping[str, Any], facts: Mapping[str, Any]) -> Finding:
    where = where_of(line["where"])
    n, each_s = int(line["count"]), call_s()
    # Calls cannot have cost more than the run took.
    saved_s = min(n * each_s, facts.get("wall_s") or n * each_s)
    tree = tree_of(where[0]) if where else None
    loop = innermost_loop(tree, where[1]) if tree is not None and where else None
    around = f", in the {kind_of(loop)} at line {loop.lineno}" if loop else ""
    return small_calls.finding(
        f"calls {line['function']} {count(n)} times with little data",
        [
            f"{count(n)} calls{around}, in the {seconds(facts['calls']['seen_s'])} in which calls were counted",
            f"at most {size(line['most_bytes'])} of arguments differ from call to call",
            *([f"at most {line['in_turn']} of them needed one another's results"] if line["in_turn"] > 1 else []),
            f"calling a jitted function that does next to nothing takes {seconds(each_s)} here",
        ],
        IN_TURN if _is_in_turn(line) else APART,
        where=where,
        gain=Gain(f"estimated: at least {seconds(saved_s)} of these calls, which is what starting them takes"),
        severity="info" if _is_in_turn(line) and n < DEAR_IN_TURN else None,
    )


def call_s() -> float:
    """The quickest of some rounds of calls of a program that adds two numbers, each."""
    add = jax.jit(lambda a, b: a + b)
    one = jnp.ones(())
    add(one, one).block_until_ready()
    best = float("inf")
    for _ in range(5):
        begun = perf_counter()
        for _ in range(ROUNDS):
            add(one, one)
        best = min(best, (perf_counter() - begun) / ROUNDS)
    return best
