"""Pipelines: real worker processes for what passes through them, one device twice for what does not need several."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pipelines_by_hand
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xspace_by_hand import Event, op, plane, space

from benchax.errors import NotMeasured, UsageError
from benchax.experiments import pipeline, pipelining
from benchax.experiments.pipelining import ONE_THREAD, Idle, Pipe, bubble, idle_of, told_idle
from benchax.experiments.variants.sharding import cores
from benchax.results.experiment import Experiment

COUNT = min(cores() + 1, 8)
"""Of stages; with one more than there are cores, their devices share some."""
US = 10**6
"""Picoseconds."""


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


def test_results_are_those_of_the_whole_batch_and_bytes_are_counted(shared) -> None:
    found = facts(shared, "4")

    # 24 x 16 float32 at each border
    assert found["handed on:"] == f"{1.5 * (COUNT - 1):.2f} KiB in {4 * (COUNT - 1)} transfers"
    assert "wrong result:" not in found
    assert shared.signature == "f32[24,16]"


def test_the_formula_stands_beside_it(shared) -> None:
    label = "idle by the formula, if stages are equal:"

    assert facts(shared, "1")[label] == f"{100 * (COUNT - 1) / COUNT:.0f} %"


def test_a_number_that_does_not_divide_the_batch_says_why_and_the_others_go_on(shared) -> None:
    assert facts(shared, "5") == {"not available:": "the 24 rows of x do not divide into 5 micro-batches"}


@pytest.mark.skipif(cores() >= COUNT, reason="more cores than the test has stages")
def test_devices_that_share_cores_are_not_timed(shared) -> None:
    assert {point.seconds for point in shared.curves[0].points} == {None}
    assert shared.curves[0].sentence.startswith(f"{COUNT} fake devices share {cores()} core")
    assert "times, busy and idle devices are not measured" in shared.curves[0].sentence
    assert "idle in a profile:" not in facts(shared, "1")


def test_it_shows_itself(shared) -> None:
    assert "micro-batches through stages on a device each" in str(shared)


@pytest.mark.serial
def test_where_devices_are_apart_they_are_timed_and_seen_idle(monkeypatch) -> None:
    monkeypatch.setattr(pipelining, "ENTRY", pipelines_by_hand.ENTRY)

    found = pipeline(stages(2), "f32[4096,16]", micro_batches=(1,), name="two")

    (point,) = found.curves[0].points
    told = facts(found, "1")
    assert point.seconds is not None or "not timed:" in told, told
    assert "idle in a profile:" in told, told
    # One part is on one device at a time, however long it is there: percentages are rounded.
    assert float(told["idle in a profile:"].split(" %")[0]) >= 49
    assert "2 fake devices with a thread each" in found.curves[0].sentence


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
    with pytest.raises(UsageError, match="stages="):
        pipeline(given_stages, "f32[4]")


@pytest.mark.parametrize("numbers", [(), (0,), (1.5,), (True,), 4, "12"])
def test_what_are_no_numbers_of_micro_batches_is_refused(numbers: Any) -> None:
    with pytest.raises(UsageError, match="micro_batches="):
        pipeline([jnp.sin, jnp.cos], "f32[4]", micro_batches=numbers)


# ---- on one device, here ----------------------------------------------------------------------------------------


def tried(fns: list[Any], x: Any, count: int, *, is_timed: bool = False) -> dict[str, Any]:
    chained = functools.reduce(lambda value, fn: fn(value), fns, x)
    pipe = Pipe(tuple(map(jax.jit, fns)), (jax.devices()[0],) * len(fns))
    return pipelining._tried(pipe, x, count, chained, is_timed=is_timed)


def test_a_stage_that_mixes_the_rows_gives_a_wrong_result_and_no_time() -> None:
    found = tried([jnp.sin, lambda x: x - x.mean()], jnp.arange(8.0), 2)

    assert found["facts"][0][0] == "wrong result:"
    assert found["time"] == (None, None, None)


@pytest.mark.parametrize("low", [None, 1.0])
def test_a_median_without_an_interval_is_not_told(monkeypatch, low: float | None) -> None:
    monkeypatch.setattr(pipelining, "timed", lambda call: (1.5, low, low))
    monkeypatch.setattr(pipelining, "_seen_idle", lambda pipe, parts: ())

    found = tried([jnp.sin, jnp.cos], jnp.arange(8.0), 2, is_timed=True)

    assert found["time"] == ((1.5, 1.0, 1.0) if low else (None, None, None))
    assert ("not timed:" in dict(found["facts"])) is (low is None)


@pytest.mark.parametrize(
    ("last", "x", "why"),
    [
        (jnp.sum, jnp.ones(8), "the last stage gives a scalar for each micro-batch"),
        (jnp.sin, jnp.float32(1), "x is no batch"),
    ],
)
def test_what_cannot_be_cut_or_put_together_says_so(last, x, why: str) -> None:
    assert why in tried([jnp.sin, last], x, 1)["why"]


def test_trees_pass_through() -> None:
    batch = {"a": jnp.arange(6.0), "b": jnp.ones((6, 2), jnp.int8)}

    found = dict(tried([lambda t: t, lambda t: {**t, "a": t["a"] + 1}], batch, 3)["facts"])

    assert found["handed on:"] == "36 B in 3 transfers"


def test_each_tick_begins_with_the_last_stage() -> None:
    seen: list[tuple[int, int]] = []

    def stage(number: int, x: Any) -> Any:
        seen.append((number, int(x)))
        return x

    pipe = Pipe(tuple(functools.partial(stage, i) for i in range(3)), (jax.devices()[0],) * 3)
    pipe([np.int32(0), np.int32(1)])

    assert seen == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (2, 1)]


def test_devices_that_slow_one_another_down_are_not_timed() -> None:
    assert pipelining._hindrance(2, 2, lambda: 1.1) == ""
    assert "all stages at once take 1.90 times as long" in pipelining._hindrance(2, 4, lambda: 1.9)
    assert pipelining._hindrance(4, 1, lambda: pytest.fail("not asked")) == "4 fake devices share 1 core"


def test_one_device_in_place_of_two_is_a_slowdown() -> None:
    pipe = Pipe((jax.jit(jnp.sin), jax.jit(jnp.sin)), (jax.devices()[0],) * 2)

    assert pipe.slowdown(jnp.ones(2**20)) > 1


@given(st.integers(2, 64), st.integers(1, 10_000))
def test_more_micro_batches_leave_a_smaller_bubble(stages: int, parts: int) -> None:
    assert 0 < bubble(stages, parts + 1) < bubble(stages, parts) <= (stages - 1) / stages


def test_the_bubble_of_the_paper() -> None:
    """GPipe, figure 2 c: 4 partitions, 4 micro-batches."""
    assert bubble(4, 4) == 3 / 7


# ---- traces by hand ---------------------------------------------------------------------------------------------


def trace(*events: Event) -> bytes:
    return space(plane("/host:CPU", {"pool": events}))


def test_a_device_is_idle_before_its_first_operation_and_behind_its_last() -> None:
    recorded = trace(
        op("a", 0, 4 * US),
        op("a", 5 * US, US),
        op("b", 2 * US, 6 * US, device_ordinal=1, run_id=2),
        op("b", 9 * US, US, device_ordinal=1, run_id=3),
    )

    span_s, idle, count = idle_of(recorded, ["cpu:1", "cpu:0"])

    assert span_s == pytest.approx(10e-6)
    assert idle == pytest.approx((0.3, 0.5))
    assert count == 4


def test_a_device_that_the_trace_lacks_is_no_idle_one() -> None:
    with pytest.raises(NotMeasured, match="no operations of cpu:1"):
        idle_of(trace(op("a", 0, US)), ["cpu:0", "cpu:1"])


def test_an_operation_without_its_end_is_no_busy_time() -> None:
    with pytest.raises(NotMeasured, match="does not say when some operations ended"):
        idle_of(trace(op("a", 0, US, _p=1)), ["cpu:0"])


def test_the_recording_of_median_length_is_told_of_those_that_hold_all_operations() -> None:
    whole = [Idle(span, (span / 10, 0.5), 6) for span in (3.0, 1.0, 2.0)]

    found = told_idle([Idle(0.5, (0.9, 0.9), 5), *whole, Idle(0.6, (0.9, 0.9), 5)], "")

    assert found == (("idle in a profile:", "35 % (by device 20 %, 50 %)"),)


@pytest.mark.parametrize(("why", "told"), [("", "the recordings differ in the number of operations"), ("so", "so")])
def test_too_few_recordings_that_hold_all_operations_say_nothing(why: str, told: str) -> None:
    found = told_idle([Idle(1, (0.5,), 6), Idle(1, (0.5,), 6), Idle(1, (0.5,), 5)], why)

    assert found == (("idle, not measured:", told),)


def test_each_fake_device_has_one_thread_only() -> None:
    """XLA still knows the flag: it ends a process that has one it does not know."""
    code = "import jax; print(jax.jit(lambda x: x @ x)(jax.numpy.ones((2, 2)))[0, 0])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "XLA_FLAGS": ONE_THREAD}, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr


def test_results_show_themselves_without_the_hub() -> None:
    code = (
        "from benchax.experiments import loops; from benchax.model import RENDERERS; print('Experiment' in RENDERERS)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True"
