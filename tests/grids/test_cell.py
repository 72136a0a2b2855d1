"""One cell, run in this process: what is measured, told on the way, checked and answered."""

from __future__ import annotations

import json
import traceback
from dataclasses import replace
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from functions_by_hand import slow_at_first

from benchax.case import make_case
from benchax.grids import cell
from benchax.grids.cell import MOST_CALLS, join_trials
from benchax.grids.outputs import put_together
from benchax.json_values import encode_value
from benchax.measuring.prepare import prepare
from benchax.measuring.record import RemoteRow
from benchax.model import Failure, Samples
from benchax.options import resolve

OPTIONS = resolve({"timer": "wall", "verify": "off", "memory": False, "stages": "samples", "store": "off"})


def request(fn: Any, value: Any = "f32[4]", **more: Any) -> cell.CellRequest:
    make, seeds = more.pop("make", None), more.pop("seeds", (1, 2))
    options = replace(OPTIONS, memory=more.pop("memory", False))
    return cell.CellRequest("f", fn, value, make, seeds, options, **more)


def measured(asked: cell.CellRequest) -> tuple[dict[str, Any], list[Any], list[dict[str, Any]]]:
    """All that is known in the end, as JSON; the outputs of each trial; and what was told."""
    told: list[dict[str, Any]] = []
    answer = cell.measure_cell(asked, lambda stage, **facts: told.append({"stage": stage, **facts}))
    remote = RemoteRow()
    for news in told:
        remote.listen(json.loads(json.dumps(news)))
    failure = encode_value(answer.failure, Failure | None)
    known = remote.known | {"failure": failure, "not_kept": answer.not_kept}
    return known, list(map(put_together, answer.outputs)), told


def test_each_stage_has_its_time_and_each_trial_its_readings_and_all_is_told_before_the_answer() -> None:
    """What was told is all that is left of a cell that is killed."""
    document, _, told = measured(request(lambda x: x + 1))

    assert document["failure"] is None
    assert document["signature"] == "f32[4]"
    assert {k for k, v in document["stages"].items() if v} >= {"trace_s", "lower_s", "compile_s", "first_run_s"}
    assert [1 <= len(trial["elapsed_s"]) <= MOST_CALLS for trial in document["samples"]] == [True, True]
    # Steps are announced before they begin, each with a budget of its own. A trial of a slow call is one run, not two.
    stages = [message["stage"] for message in told]
    assert [after for before, after in pairwise(["", *stages]) if (before, after) != ("run", "run")] == [
        "inputs", "trace", "lower", "compile", "trace", "run", "outputs", "inputs", "run", "outputs", "outputs",
    ]  # fmt: skip
    assert all(message["again"] for message in told)
    assert told[-2]["new_samples"] == document["samples"][-1:]
    assert [message["stages"]["compile_s"] for message in told if "stages" in message][-1] == (
        document["stages"]["compile_s"]
    )
    assert {name for message in told for name in message} >= {"signature", "not_measured", "memory", "cost", "shape"}


def test_a_call_of_many_milliseconds_is_not_made_twice_for_a_trial() -> None:
    calls = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(None)
        return x

    def slow(x: jax.Array) -> jax.Array:
        y = jax.lax.fori_loop(0, 30_000_000, lambda _, y: y * 0.999 + 0.1, x[0])
        return jax.pure_callback(count, jax.ShapeDtypeStruct(x.shape, x.dtype), x + y)

    document, _, _ = measured(request(slow, seeds=(1, 2, 3)))

    assert document["failure"] is None
    assert [len(trial["elapsed_s"]) for trial in document["samples"]] == [1, 1, 1]
    assert len(calls) == 4  # the first run, and one for each trial


@pytest.mark.parametrize("timer", ["wall", "auto"])
def test_a_short_call_that_was_preempted_is_no_reading(timer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of some µs that took 16 ms once was the only reading of its trial."""
    monkeypatch.setattr(cell.noise, "timed", lambda call: (call(), 0.016))
    asked = request(lambda x: x + 1)

    document, _, _ = measured(replace(asked, options=replace(asked.options, timer=timer)))

    trials = [each["elapsed_s"] for each in document["samples"] if each["timer"] == "wall"]
    assert [len(trial) > 1 for trial in trials] == [True, True]


def test_a_slow_first_call_does_not_choose_the_timers() -> None:
    count = slow_at_first()

    def fn(x: jax.Array) -> jax.Array:
        return jax.pure_callback(count, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    asked = request(fn, "f32[24,24]", seeds=(1,))
    document, _, _ = measured(replace(asked, options=replace(asked.options, timer="auto")))

    assert document["failure"] is None
    assert not any("a call takes" in absent["why"] for absent in document["not_measured"]), document["not_measured"]


def test_trials_have_inputs_of_their_own_and_the_same_seed_gives_the_same() -> None:
    """By `make`, or by a function of a key, whose tuple is splatted."""

    def make(key: Any, n: int) -> jax.Array:
        return jax.random.normal(key, (n,))

    first, again = (measured(request(lambda x: x, 4, make=make))[1] for _ in range(2))
    document, outputs, _ = measured(
        request(lambda x, y: x + y, lambda key: (jnp.ones(3), jax.random.uniform(key, (3,))))
    )

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first[0], first[1])
    assert document["signature"] == "f32[3], f32[3]"
    assert all((out >= 1).all() and (out < 2).all() for out in outputs)


def test_outputs_of_any_structure_come_back_up_to_the_limit() -> None:
    def f(x: jax.Array) -> Any:
        return {"a": x, "b": (x.sum(), [None, x.astype("bfloat16")]), "k": jax.random.key(0)}

    document, (out,), _ = measured(request(f, seeds=(1,)))
    beyond, outputs, _ = measured(request(lambda x: x, "f32[1000]", seeds=(1, 2, 3), output_limit_bytes=5000))

    assert out["b"][1][0] is None
    assert str(out["b"][1][1].dtype) == "bfloat16"
    assert (type(out["b"]), out["b"][0].shape, out["k"].dtype) == (tuple, (), np.uint32)
    assert document["shape"] == "{a: [4], b: ([], list(None, [4])), k: [2]}"
    assert (outputs, beyond["failure"]) == ([], None)
    assert "4.88 KiB" in beyond["not_kept"]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"expected": "[3]", "expected_from": "g"}, "[4] where g gave [3]"),
        ({"check": lambda y, x: False}, "[4], which the check refused"),
        ({"check": lambda y, x: jnp.array(False)}, "[4], which the check refused"),
        ({"check": lambda y, x: "too short"}, "too short"),
    ],
)
def test_another_shape_or_a_check_that_says_no_is_told_and_not_timed(more: dict[str, Any], message: str) -> None:
    document, _, _ = measured(request(lambda x: x, **more))

    assert (document["failure"]["kind"], document["failure"]["message"]) == ("wrong_shape", message)
    assert "samples" not in document


@pytest.mark.parametrize("verdict", [True, None, "", jnp.array(True)])
def test_a_check_that_does_not_say_no_is_content_whatever_the_others_gave(verdict: Any) -> None:
    document, _, _ = measured(request(lambda x: x, check=lambda y, x: verdict, expected="[9]", expected_from="g"))

    assert document["failure"] is None


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda y, x: 1 / 0, "the check raised ZeroDivisionError: division by zero (at "),
        (lambda y, x: y == x, "the check raised ValueError: The truth value of an array"),
        (lambda y: True, "the check raised TypeError: "),
    ],
)
def test_what_the_check_raises_is_the_checks(check: Any, message: str) -> None:
    document, _, _ = measured(request(lambda x: x, check=check))

    assert (document["failure"]["kind"], document["failure"]["stage"]) == ("error", "check")
    assert document["failure"]["message"].startswith(message)


def _raise(error: BaseException) -> Any:
    raise error


def _adds(x: jax.Array) -> jax.Array:
    TOTAL[...] += x.sum()
    return x


def _steps(x: jax.Array) -> Any:
    yield x


TOTAL = jax.new_ref(jnp.zeros(())) if hasattr(jax, "new_ref") else None


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda x: _raise(ValueError("no")), "ValueError: no"),
        (lambda x: _raise(SystemExit(3)), "SystemExit: 3"),
        (lambda x: _raise(KeyboardInterrupt()), "KeyboardInterrupt"),
        (_steps, "_steps is a generator function"),
        pytest.param(
            _adds, "changes 'TOTAL' in place", marks=pytest.mark.skipif(TOTAL is None, reason="no references")
        ),
    ],
)
def test_what_a_function_raises_is_its_failure_with_the_step(fn: Any, message: str) -> None:
    document, _, _ = measured(request(fn))

    assert document["failure"]["kind"] == "error"
    assert document["failure"]["stage"] == "trace" or fn in (_steps, _adds)
    assert message in document["failure"]["message"]
    assert "samples" not in document
    # Running out of memory is left to the pool, which gives up the worker.
    with pytest.raises(MemoryError):
        measured(request(lambda x: _raise(MemoryError())))


def test_a_first_run_that_compiles_is_no_first_run_and_trials_that_compile_are_remarked() -> None:
    class Lazy:
        """A wrapper whose `lower` builds another program than its call."""

        def lower(self, x: Any) -> Any:
            return jax.jit(lambda x: x).lower(x)

        def __call__(self, x: Any) -> Any:
            return jax.jit(lambda x: x * 2)(x)

    document, _, _ = measured(request(Lazy()))

    assert "first_run_s" not in document["stages"]
    assert "stages.first_run_s" in [absent["what"] for absent in document["not_measured"]]
    assert "recompiled" in [remark["code"] for remark in document["remarks"]]


def test_a_cell_has_what_a_row_of_bench_has() -> None:
    document, _, _ = measured(request(lambda x: x + 1, np.ones(1000, np.float32)))
    donating, _, _ = measured(request(jax.jit(lambda x: x + 1, donate_argnums=0), jnp.arange(4.0)))

    assert donating["failure"] is None
    assert document["memory"]["argument_bytes"] == 4000
    assert document["cost"]["flops"] == 1000
    assert document["noise"]["load_1m"] >= 0
    assert document["samples"][0]["resolution_s"] > 0
    assert {remark["code"] for remark in document["remarks"]} >= {"numpy-inputs", "not-jitted"}
    absent = {each["what"]: each["why"] for each in document["not_measured"]}
    assert absent["numerics"].startswith("a grid compares functions with one another")
    assert absent["memory.compiled_rise_bytes"] == "switched off"


def test_trials_with_readings_of_different_lengths_are_told_as_readings_of_the_shortest() -> None:
    """As readings of one call, those of `in_graph` would be shorter than a hundred steps of the clock."""
    first = Samples("in_graph", 1000, (2e-4, 4e-4), resolution_s=4.5e-8)
    second = Samples("in_graph", 500, (1e-4,), resolution_s=4.5e-8)

    (joined,) = join_trials([first, second])

    assert joined.iterations == 500
    assert joined.per_call_s == pytest.approx((2e-7, 4e-7, 2e-7))
    assert joined.resolution_s == 4.5e-8
    assert joined.trials == (2, 1)


@pytest.mark.parametrize("examines", [True, False])
def test_a_function_is_examined_where_it_is_asked_for(examines: bool) -> None:
    drawn = iter(range(100))
    document, _, _ = measured(request(lambda x: x + next(drawn), examines=examines))

    assert ("impure" in [remark["code"] for remark in document["remarks"]]) == examines


@pytest.mark.slow
@pytest.mark.skipif(jax.default_backend() != "cpu", reason="observed in passes of their own on CPU")
def test_memory_is_observed_where_it_is_asked_for() -> None:
    document, _, _ = measured(request(lambda x: jnp.sort(x) * 2, "f32[1000000]", memory=True, seeds=(1,)))

    absent = {each["what"]: each["why"] for each in document["not_measured"]}
    assert document["memory"]["compiled_rise_bytes"] or absent["memory.compiled_rise_bytes"] != "switched off"


def test_a_trial_by_wall_waits_as_bench_does() -> None:
    """An array's own method costs less than `jax.block_until_ready`: the same call was 1 µs longer in a grid."""
    waits: list[str] = []

    class Result:
        """Stands for an array, as far as the wait is concerned."""

        def block_until_ready(self) -> None:
            waits.append("its own")

    subject = prepare(make_case(jnp.sin, ("f32[4]",))).call_first().subject
    subject = replace(subject, program=replace(subject.program, call=lambda x: Result()))

    taken = cell.read_trial("wall", subject, OPTIONS, 0.0)

    assert waits == ["its own"] * taken.summary.n
    assert 6 <= taken.summary.n <= MOST_CALLS


def test_readings_are_taken_from_an_empty_stack_as_those_of_bench() -> None:
    """What a call costs depends on how many frames are above it."""
    callers: list[set[str]] = []

    class Looking:
        def lower(self, x: Any) -> Any:
            return jax.jit(lambda x: x).lower(x)

        def __call__(self, x: Any) -> Any:
            callers.append({frame.name for frame in traceback.extract_stack()})
            return x

    measured(request(Looking(), seeds=(1,)))

    assert "fill" in callers[0]  # the first run
    assert "fill" not in callers[-1]
