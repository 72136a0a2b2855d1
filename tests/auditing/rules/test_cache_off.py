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
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules.compiling import cache_off
from benchax.case import make_case
from benchax.model import Measurement, Stages
from benchax.results.audit import Checked, Finding
from benchax.results.cache import CachedProgram, Fate


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
