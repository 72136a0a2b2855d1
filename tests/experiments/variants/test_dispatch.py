"""Asynchronous dispatch off. One process is real; comparisons are by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab
from measurement_strategies import RICH

from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.lab import WorkerLab
from benchax.experiments.variants.dispatch import SETTING, SYNC, Synchronous
from benchax.model import Failure, Measurement
from benchax.options import resolve

CASE = make_case(lambda x: jnp.sort(x), ("f32[2000]",))
HERE = replace(RICH, failure=None, environment=replace(RICH.environment, backend="cpu"))


def row(ratio: float, found: Measurement = HERE) -> Any:
    (row,) = Synchronous().plan(CASE)(ScriptedLab(usual=ratio, alone=found))
    return row


@pytest.mark.slow
def test_the_setting_reaches_the_process_and_not_this_one() -> None:
    before = jax.config.values[SETTING]

    options = resolve({"max_time_s": 0.05, "memory": False, "verify": "off", "timer": "wall"})
    found = WorkerLab(options).measure_alone(CASE, SYNC, options)

    assert found.failure is None
    assert found.environment.config[SETTING] is False
    assert found.stages.dispatch_s is not None
    assert jax.config.values[SETTING] is before


def test_the_verdict_is_of_pairs_and_when_calls_return_stands_beside_it() -> None:
    found = row(1.5)

    assert found.comparison.verdict == "slower"
    assert found.sentence.startswith("costs ")
    assert [label for label, _ in found.facts] == ["timed", "asynchronous", "synchronous"]
    assert "the call returns after" in dict(found.facts)["synchronous"]


def test_on_another_back_end_there_is_no_such_setting() -> None:
    with pytest.raises(NotAvailable, match="setting of the CPU backend, and this is gpu"):
        row(1.0, replace(HERE, environment=replace(HERE.environment, backend="gpu")))


def test_a_function_that_fails_is_a_row() -> None:
    found = row(1.0, replace(HERE, failure=Failure("error", "build", "no")))

    assert (found.status, found.reason) == ("failed", "error in build: no")
