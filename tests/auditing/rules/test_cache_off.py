"""Long compilations that are not kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import ScriptedEvidence

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rules.compiling import cache_off
from benchax.case import make_case
from benchax.model import Measurement, Stages
from benchax.results.audit import Checked, Finding
from benchax.results.watch import CachedProgram, CacheUse, Fate, Watch


def program(cache: CacheUse | None) -> tuple[list[Finding], Checked]:
    return ask(cache_off, ProgramEvidence("python train.py", Watch(), cache=cache))


def compiled(fate: Fate, *elapsed_s: float) -> list[CachedProgram]:
    return [CachedProgram(f"jit(f{i})", fate, s) for i, s in enumerate(elapsed_s)]


@lru_cache(maxsize=1)
def measured_once() -> Measurement:
    return benchax.bench(lambda x: x + 1, jnp.ones(3), timer="wall", max_time_s=0.02, memory=False, store="off")


def function(**stages: Any) -> tuple[list[Finding], Checked]:
    """Of one that took a given time to compile."""
    live = Evidence(make_case(lambda x: x + 1, (jnp.ones(3),)))
    if not stages:
        return ask(cache_off, live)
    return ask(cache_off, ScriptedEvidence(live, measurement=replace(measured_once(), stages=Stages(**stages))))


def test_a_program_without_a_cache_hears_how_long_it_compiled() -> None:
    (finding,), _ = program(CacheUse(compiled("not kept", 0.5, 5.0), is_enabled=False, why_off="no folder is set"))

    assert finding.title == "the persistent cache is off (no folder is set)"
    assert finding.seen[1] == "jit(f1): 5.00 s"
    assert finding.gain == "estimated: 5.50 s of compiling in each start but the first, less reading the cache"
    assert "JAX_COMPILATION_CACHE_DIR" in finding.advice
    assert "MIN_COMPILE_TIME" not in finding.advice


def test_a_cache_that_would_keep_little_of_it_needs_its_setting_too() -> None:
    lost = compiled("not kept", 0.5, 5.0)
    (finding,), _ = program(CacheUse(lost, is_enabled=False, why_off="no folder is set", min_compile_time_s=1.0))

    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" in finding.advice


def test_programs_below_the_threshold_are_named_with_the_setting() -> None:
    quick = compiled("too quick", *(0.8 for _ in range(8)))
    (finding,), _ = program(CacheUse(quick, directory="/c", is_enabled=True, min_compile_time_s=1.0))

    assert finding.title == "the persistent cache does not keep 8 programs that were quick to compile"
    assert "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0" in finding.advice
    assert "1.00 s" in finding.advice


@pytest.mark.parametrize("fate", ["hit", "written"])
def test_a_cache_that_keeps_everything_is_fine(fate: Fate) -> None:
    assert program(CacheUse(compiled(fate, 6.0), is_enabled=True, min_compile_time_s=1.0))[1].outcome == "fine"


def test_a_cache_that_is_off_is_not_called_fine_where_it_is_not_needed() -> None:
    _, of_program = program(CacheUse(compiled("not kept", 1.0, 1.0), is_enabled=False, why_off="no folder is set"))
    _, of_function = function(compile_s=4.9, cache="off")

    assert (of_program.outcome, of_function.outcome) == ("not applicable", "not applicable")
    assert (of_program.why or "").startswith("the persistent cache is off, and 2.00 s of compiling")


def test_a_program_whose_cache_was_not_watched_is_not_called_fine() -> None:
    assert program(None)[1].outcome == "not checked"


def test_a_function_that_compiles_long_without_a_cache() -> None:
    (finding,), _ = function(compile_s=6.0, cache="off")

    assert finding.seen == ("compiling takes 6.00 s (measured once), in each process again",)
    assert "MIN_COMPILE_TIME" not in finding.advice


@pytest.fixture
def a_minute_least() -> Iterator[None]:
    """What takes less than a minute to compile is not kept."""
    setting = "jax_persistent_cache_min_compile_time_secs"
    before = jax.config.values[setting]
    jax.config.update(setting, 60.0)
    yield
    jax.config.update(setting, before)


@pytest.mark.usefixtures("a_minute_least")
def test_a_function_that_the_cache_would_not_keep() -> None:
    (off,), _ = function(compile_s=6.0, cache="off")
    (on,), _ = function(compile_s=6.0, cache="miss")

    assert "MIN_COMPILE_TIME" in off.advice
    assert "JAX_COMPILATION_CACHE_DIR" in off.advice
    assert on.title == "the persistent cache keeps only what takes 60.0 s to compile"


def test_a_function_that_compiles_at_once_or_comes_from_the_cache() -> None:
    assert function()[1].outcome == "not applicable"
    assert function(compile_s=6.0, cache="miss")[1].outcome == "fine"
    assert function(compile_s=6.0, cache="hit")[1].outcome == "not applicable"


def test_the_threshold_is_that_of_jax() -> None:
    assert jax.config.values["jax_persistent_cache_min_compile_time_secs"] == 1.0
