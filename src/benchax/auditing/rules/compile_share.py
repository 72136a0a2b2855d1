"""Finds programs that spend a good part of their time on tracing, lowering and compiling."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.results.watch import Compile, FunctionCount
from benchax.units import percent, seconds

LARGE_SHARE = 0.3
LONG_S = 1.0
"""Less than this in all is nothing to care about."""
LONG_ONCE_S = 10.0
"""What is compiled once is no fault, and most of the time of every short script: it is told where somebody waits for
it, and tracing and lowering, which no cache keeps, may be a part of it."""
OFTEN = 3
"""Recompiles of one function; a second or third size, as of the levels of a pyramid, is often what is wanted."""
MOST_FUNCTIONS = 3
AGAIN = "See first to what is compiled again: {lines}. benchax watch gives the reason for each program."
ONCE = (
    "A longer run has a smaller share. To keep programs from run to run, set JAX_COMPILATION_CACHE_DIR, and "
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 for those that take less than a second each."
)


@rule("compile-share", "does it run for longer than it compiles?", "warning", of="program")
def compile_share(e: ProgramEvidence) -> Iterable[Finding]:
    share: float | None = e.facts["main_thread_share"]
    if share is None:
        raise NotMeasured("the program had not ended when it was last seen")
    spent_s = e.watch.total_s
    if share < LARGE_SHARE or spent_s < LONG_S:
        return
    again_s = sum(c.total_s for c in e.watch.recompiles)
    often = _often(e.watch.recompiles)
    is_mostly_again = sum(c.total_s for cs in often.values() for c in cs) > 0.5 * spent_s
    # Where no cache keeps them, cache-off tells of long compilations, and which.
    is_told = e.cache is not None and e.cache.is_enabled is False
    if not is_mostly_again and (spent_s < LONG_ONCE_S or is_told):
        return
    again = f", {seconds(again_s)} of it for functions that had a program already" if again_s else ""
    seen = [
        f"after the import of JAX, {seconds(spent_s)} of {seconds(e.watch.wall_s or 0.0)} went into it{again}",
        *(_cost(f) for f in e.watch.functions[:MOST_FUNCTIONS]),
    ]
    yield compile_share.finding(
        f"the main thread spends {percent(share)} of its time on tracing, lowering and compiling",
        seen,
        AGAIN.format(lines=_list(often)) if is_mostly_again else ONCE,
        # A good loop of 1000 steps spent 85 % of its 4 s on compiling three functions once each: true, and no fault.
        severity="warning" if is_mostly_again else "info",
    )


def _cost(f: FunctionCount) -> str:
    where = f" at {f.defined}" if f.defined else " (an operation outside of jit)" if f.is_eager else ""
    programs = "a program" if f.compiles == 1 else f"{f.compiles} programs"
    return f"{f.function}{where}: {programs}, {seconds(f.total_s)}"


def _often(recompiles: Iterable[Compile]) -> dict[str, list[Compile]]:
    """Those of functions that were compiled again often, by function."""
    lost: dict[str, list[Compile]] = {}
    for c in recompiles:
        lost.setdefault(f"{c.function}{f' at {c.defined or c.where}' if c.defined or c.where else ''}", []).append(c)
    return {name: compiles for name, compiles in lost.items() if len(compiles) >= OFTEN}


def _list(lost: Mapping[str, list[Compile]]) -> str:
    """The functions that took most of it: step at train.py:4 (4 more, 4.00 s)."""
    ranked = sorted(lost.items(), key=lambda item: -sum(c.total_s for c in item[1]))[:MOST_FUNCTIONS]
    return ", ".join(f"{name} ({len(cs)} more, {seconds(sum(c.total_s for c in cs))})" for name, cs in ranked)
