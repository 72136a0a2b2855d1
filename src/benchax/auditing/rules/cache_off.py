"""Finds long compilations that each process repeats, because JAX's persistent cache is off or does not keep them."""

from __future__ import annotations

from collections.abc import Iterable

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import Gain, NotApplicable, rule
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.results.cache import CachedProgram, CacheUse
from benchax.units import seconds

WORTH_S = 5.0
"""Seconds of compiling, all programs together. Starting Python and JAX takes one or two at each start, cache or not:
nobody waits for what is less than a few times that, and every short script would be told."""
TOO_LITTLE = f"is too little to be worth one (from {seconds(WORTH_S)} on)"
SHOWN = 3
TURN_ON = "Set JAX_COMPILATION_CACHE_DIR to a folder that outlives the process, and is written to by nobody else."
KEEP = "Set {setting}: JAX keeps only what took longer than {least} to compile."


@rule("cache-off", "does a persistent cache keep what takes long to compile?", "info", of="both")
def cache_off(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    yield from _of_program(e.cache) if isinstance(e, ProgramEvidence) else _of_function(e)


def _of_program(cache: CacheUse | None) -> Iterable[Finding]:
    if cache is None:
        raise NotMeasured("the persistent cache was not watched in this program")
    lost = [p for p in cache.programs if p.fate in ("too quick", "not kept")]
    lost_s = sum(p.elapsed_s for p in lost)
    if lost_s < WORTH_S:
        if cache.is_enabled is False:
            raise NotApplicable(f"the persistent cache is off, and {seconds(lost_s)} of compiling {TOO_LITTLE}")
        return
    if cache.is_enabled is False:
        title = f"the persistent cache is off ({cache.why_off})"
        yield _finding(title, _turn_on(cache, lost), lost_s, _slowest(lost))
    elif cache.total_s("too quick") >= WORTH_S and cache.keeping_setting and cache.min_compile_time_s is not None:
        advice = KEEP.format(setting=cache.keeping_setting, least=seconds(cache.min_compile_time_s))
        quick = cache.of("too quick")
        title = f"the persistent cache does not keep {len(quick)} programs that were quick to compile"
        yield _finding(title, advice, cache.total_s("too quick"), _slowest(quick))


def _of_function(e: Evidence) -> Iterable[Finding]:
    stages = e.measurement.stages
    if stages.cache == "hit":
        raise NotApplicable("the persistent cache gave the compiled program")
    if stages.compile_s is None:
        raise NotMeasured(e.measurement.why_absent("compile_s") or "its compilation was not timed")
    if stages.compile_s < WORTH_S:
        off = "is off, and" if stages.cache == "off" else "is on, and"
        raise NotApplicable(f"the persistent cache {off} {seconds(stages.compile_s)} of compiling {TOO_LITTLE}")
    seen = [f"compiling takes {seconds(stages.compile_s)} (measured once), in each process again"]
    least_s = float(jax.config.values["jax_persistent_cache_min_compile_time_secs"])
    if stages.cache == "off":
        # JAX keeps only what took longer than this to compile (1 s by default): the folder alone would stay empty.
        too_quick = least_s > stages.compile_s
        setting = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
        advice = f"{TURN_ON} {KEEP.format(setting=setting, least=seconds(least_s))}" if too_quick else TURN_ON
        yield _finding("the persistent cache is off", advice, stages.compile_s, seen)
    elif least_s > stages.compile_s:
        setting = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
        title = f"the persistent cache keeps only what takes {seconds(least_s)} to compile"
        advice = KEEP.format(setting=setting, least=seconds(least_s))
        yield _finding(title, advice, stages.compile_s, seen)


def _finding(title: str, advice: str, lost_s: float, seen: list[str]) -> Finding:
    gain = Gain(f"estimated: {seconds(lost_s)} of compiling in each start but the first, less reading the cache")
    return cache_off.finding(title, seen, advice, gain=gain)


def _turn_on(cache: CacheUse, lost: list[CachedProgram]) -> str:
    least_s, setting = cache.min_compile_time_s, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0"
    if least_s is None or all(p.elapsed_s > least_s for p in lost):
        return TURN_ON
    return f"{TURN_ON} {KEEP.format(setting=setting, least=seconds(least_s))}"


def _slowest(programs: list[CachedProgram]) -> list[str]:
    total_s = sum(p.elapsed_s for p in programs)
    listed = sorted(programs, key=lambda p: -p.elapsed_s)[:SHOWN]
    return [
        f"{len(programs)} programs were compiled in {seconds(total_s)}, by JAX's own clock, and none was kept",
        *(f"{p.name or 'a program'}: {seconds(p.elapsed_s)}" for p in listed),
    ]
