"""Pipelines of stages, in real worker processes."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from typing import Any

import jax.numpy as jnp
import pipelines_by_hand
import pytest
from jax_versions import tells_runs

from benchax.environment import count_cores
from benchax.errors import UsageError
from benchax.experiments import pipeline
from benchax.experiments.variants import pipeline as variant
from benchax.results.experiment import Experiment

COUNT = min(count_cores() + 1, 8)
"""Of stages; with one more than there are cores, their devices share some."""


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def stages(count: int) -> list[Any]:
    return [functools.partial(layer, jnp.full((16, 16), 0.01 * i)) for i in range(1, count + 1)]


def facts(found: Experiment, label: str) -> dict[str, str]:
    (point,) = [point for point in found.curves[0].points if point.label == label]
    return dict(point.facts)


@pytest.fixture(scope="module")
def shared() -> Experiment:
    return pipeline(stages(COUNT), "f32[24,16]", micro_batches=(1, 4, 5))


@pytest.mark.slow
def test_results_are_those_of_the_whole_batch_and_bytes_are_counted(shared) -> None:
    found = facts(shared, "4")

    # 24 x 16 float32 at each border
    assert found["handed on:"] == f"{1.5 * (COUNT - 1):.2f} KiB in {4 * (COUNT - 1)} transfers"
    assert "wrong result:" not in found
    assert shared.signature == "f32[24,16]"


@pytest.mark.slow
def test_the_formula_stands_beside_it(shared) -> None:
    label = "idle by the formula, if stages are equal:"

    assert facts(shared, "1")[label] == f"{100 * (COUNT - 1) / COUNT:.0f} %"


def test_a_number_that_does_not_divide_the_batch_says_why_and_the_others_go_on(shared) -> None:
    assert facts(shared, "5") == {"not available:": "the 24 rows of x do not divide into 5 micro-batches"}


@pytest.mark.skipif(count_cores() >= COUNT, reason="more cores than the test has stages")
def test_devices_that_share_cores_are_not_timed(shared) -> None:
    assert {point.seconds for point in shared.curves[0].points} == {None}
    assert shared.curves[0].sentence.startswith(f"{COUNT} fake devices share {count_cores()} core")
    assert "times, busy and idle devices are not measured" in shared.curves[0].sentence
    assert "idle in a profile:" not in facts(shared, "1")


def test_it_shows_itself(shared) -> None:
    assert "micro-batches through stages on a device each" in str(shared)


@pytest.mark.slow
@pytest.mark.serial
@tells_runs
def test_where_devices_are_apart_they_are_timed_and_seen_idle(monkeypatch) -> None:
    monkeypatch.setattr(variant, "try_pipeline", pipelines_by_hand.try_unhindered)

    found = pipeline(stages(2), "f32[4096,16]", micro_batches=(1,), name="two")

    (point,) = found.curves[0].points
    told = facts(found, "1")
    assert point.seconds is not None or "not timed:" in told, told
    assert "idle in a profile:" in told, told
    # One part is on one device at a time, however long it is there: percentages are rounded.
    assert float(told["idle in a profile:"].split(" %")[0]) >= 49
    assert "2 fake devices with a thread each" in found.curves[0].sentence


@pytest.mark.slow
def test_a_stage_that_fails_is_told() -> None:
    found = pipeline([jnp.sin, lambda x: x.no_such_thing], "f32[4]")

    assert found.baseline.status == "failed"
    assert "no_such_thing" in found.baseline.reason
    assert found.curves == ()


def test_a_stage_that_cannot_travel_is_told() -> None:
    lock = threading.Lock()

    found = pipeline([jnp.sin, lambda x: lock and x], "f32[4]")

    assert found.baseline.status == "failed"
    assert "lock" in found.baseline.reason


@pytest.mark.parametrize("given_stages", [[], [jnp.sin], [jnp.sin, 3], jnp.sin, [jnp.sin] * 65])
def test_what_are_no_stages_is_refused(given_stages: Any) -> None:
    with pytest.raises(UsageError, match="stages"):
        pipeline(given_stages, "f32[4]")


@pytest.mark.parametrize("numbers", [(), (0,), (1.5,), (True,), 4, "12"])
def test_what_are_no_numbers_of_micro_batches_is_refused(numbers: Any) -> None:
    with pytest.raises(UsageError, match="micro_batches"):
        pipeline([jnp.sin, jnp.cos], "f32[4]", micro_batches=numbers)


def test_results_show_themselves_without_the_hub() -> None:
    code = "from benchax.experiments import loops; from benchax.renderers import RENDERERS; print('html' in RENDERERS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True"
