"""Finds a Python loop whose iterations stand in the program one behind the other, so that each is compiled."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, rule
from benchax.auditing.traced import closed_jaxpr, count_equations
from benchax.auditing.unrolled import Unrolled, loops_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.units import percent, seconds

MANY_ITERATIONS = 8
LARGE = 40
"""Operations; a smaller program is compiled at once."""
LARGE_SHARE = 0.5
"""The share of the operations of the program."""
DEAR_S = 2.0
"""Of building, that a short loop could save: with less it is an info."""
UNIFORM_SHARE = 0.25
"""Of a loop's operations, that stand in a copy of it with the same shapes in each iteration."""
LONG, SHARE_OF_LONG = 50, 0.1
"""So many iterations make a program long with less of it: what a library makes of each may stand behind the loop, as
numpyro's densities do."""


@rule("unrolled-loop", "is a Python loop written out iteration by iteration?", "warning", needs_trace_only=True)
def unrolled_loop(e: Evidence) -> Iterable[Finding]:
    total = count_equations(closed_jaxpr(e))
    by_line: dict[Where, list[Unrolled]] = {}
    for loop in loops_of(e):
        by_line.setdefault(loop.where, []).append(loop)
    # Under a gradient a loop is there twice, forwards and backwards, and its first iteration differs in one of them.
    for loops in by_line.values():
        size, iterations = sum(loop.size for loop in loops), max(loop.iterations for loop in loops)
        share = SHARE_OF_LONG if iterations >= LONG else LARGE_SHARE
        is_large = iterations >= MANY_ITERATIONS and size >= max(LARGE, share * total)
        # scan takes no iterations of different shapes; and what vmap could do is another rule's: python-loop-vmap.
        uniform = sum(loop.size for loop in loops if loop.is_uniform)
        if is_large and uniform >= UNIFORM_SHARE * size and not any(loop.is_batch for loop in loops):
            yield _finding(e, max(loops, key=lambda loop: loop.iterations), size, total)


def _finding(e: Evidence, loop: Unrolled, size: int, total: int) -> Finding:
    build_s = _build_s(e)
    share = size / total
    then_s = (build_s or 0.0) * (1 - share * (1 - 1 / loop.iterations))
    part = f"{size} of the program's {total} operations ({percent(share)})"
    seen = [f"its body was traced {loop.iterations} times: {part}"]
    if build_s is not None:
        seen.append(f"tracing, lowering and compiling took {seconds(build_s)} (measured once)")
    return unrolled_loop.finding(
        f"the {loop.kind} is unrolled {loop.iterations} times",
        seen,
        "Use jax.lax.fori_loop, or jax.lax.scan where each iteration has its own data (stack the layers' "
        "parameters along a new first axis). The program is then as long as one iteration. An unrolled loop may "
        "run faster: scan has unroll= to write out a few iterations; compare both before you decide.",
        where=loop.where,
        gain=None if build_s is None else _shorter(build_s, then_s),
        severity="info" if build_s is not None and build_s - then_s < DEAR_S else None,
    )


def _shorter(build_s: float, then_s: float) -> Gain:
    text = f"estimated: building takes {seconds(then_s, 2)} in place of {seconds(build_s, 2)}"
    return Gain(f"{text}, if it goes by the number of operations")


def _build_s(e: Evidence) -> float | None:
    try:
        return e.measurement.stages.build_s
    except (NotMeasured, NotApplicable):  # the loop is there all the same
        return e.compile_s
