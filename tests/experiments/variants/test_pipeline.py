"""A function beside the stages that it is made of, in a real worker process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pipelines_by_hand
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax_versions import tells_runs
from labs_by_hand import ScriptedLab

from benchax.case import Case, make_case
from benchax.discovery import target_cases
from benchax.environment import count_cores
from benchax.errors import UsageError
from benchax.experiments import pipeline
from benchax.experiments.variant import Asked
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants import devices as pipes
from benchax.experiments.variants.devices import (
    MICRO_BATCHES,
    ONE_THREAD,
    Pipe,
    bubble,
    read_stages,
    skip_reason_of,
)
from benchax.model import Estimate
from benchax.results.experiment import Curve, Experiment, Point

FILE = """
import jax.numpy as jnp

def embed(x):
    return jnp.sin(x)

def head(x):
    return jnp.cos(x)

def net(x):
    return head(embed(x))

STAGES = [embed, head]
NUMBER = 3
"""


def net(x: Any) -> Any:
    return jnp.cos(jnp.sin(x))


def told(raw: Any, case: Case) -> tuple[list[str], tuple[int, ...]]:
    """Names of the stages, and numbers of micro-batches."""
    stages, numbers = read_stages(Asked(VARIANTS["pipeline"], case, raw))
    return [stage.__name__ for stage in stages], numbers


def measured(case: Case, raw: Any) -> Any:
    (found,) = VARIANTS["pipeline"].plan(case, raw)(ScriptedLab())
    return found


@pytest.fixture
def case(project: Path) -> Case:
    (project / "code.py").write_text(FILE)
    return target_cases("code.py:net", ["f32[8,4]"])[0]


@pytest.mark.slow
def test_stages_by_name_give_what_the_function_gives(case: Case) -> None:
    found = measured(case, "code.py:STAGES=1,3")

    assert isinstance(found, Curve)
    facts = [dict(point.facts) for point in found.points]
    assert facts[0]["handed on:"] == "128 B in 1 transfer"
    assert "wrong result:" not in facts[0]
    assert facts[1] == {"not available:": "the 8 rows of x do not divide into 3 micro-batches"}
    assert found.sentence.startswith("results are compared with those of net on one device; ")


@pytest.mark.slow
def test_stages_that_do_not_make_up_the_function_give_a_wrong_result() -> None:
    found = measured(make_case(net, ("f32[8]",)), ([jnp.cos, jnp.sin], (1,)))

    assert "wrong result:" in dict(found.points[0].facts)
    assert found.points[0].seconds is None


@pytest.mark.slow
def test_a_function_that_takes_its_input_away_leaves_one_for_the_stages() -> None:
    donating = jax.jit(net, donate_argnums=0)

    found = measured(make_case(donating, ("f32[8]",)), ([jnp.sin, jnp.cos], (1,)))

    assert [label for label, _ in found.points[0].facts][-1] == "handed on:"


@pytest.mark.slow
def test_a_stage_that_fails_is_a_row() -> None:
    row = measured(make_case(net, ("f32[8]",)), [jnp.sin, lambda x: x.no_such_thing])

    assert row.status == "failed"
    assert row.reason.startswith("error in stages:")
    assert "no_such_thing" in row.reason


@pytest.mark.parametrize(
    ("raw", "numbers"),
    [
        ("code.py:STAGES", MICRO_BATCHES),
        ("code.py:STAGES=4", (4,)),
        ("code.py:embed+code.py:head=2, 1", (2, 1)),
        (" code.py:embed + code.py:head ", MICRO_BATCHES),
    ],
)
def test_stages_are_named_one_by_one_or_as_a_list(raw: str, numbers: tuple[int, ...], case: Case) -> None:
    assert told(raw, case) == (["embed", "head"], numbers)


@pytest.mark.parametrize("folder", ["a=b", "a+b", "a,b", "a=1", "a+b=c,d 1"])
@pytest.mark.parametrize(
    ("names", "numbers"),
    [("{0}:STAGES", MICRO_BATCHES), ("{0}:STAGES=1,2", (1, 2)), ("{0}:embed+{0}:head=1,2", (1, 2))],
)
def test_paths_may_hold_the_characters_that_part_names(folder: str, names: str, numbers: Any, project: Path) -> None:
    (project / folder).mkdir()
    (project / folder / "code.py").write_text(FILE)

    assert told(names.format(f"{folder}/code.py"), make_case(net, ("f32[8]",))) == (["embed", "head"], numbers)


def test_functions_and_numbers_are_taken_as_they_are() -> None:
    case = make_case(net, ("f32[8]",))
    sin, cos = [functools.wraps(fn)(lambda x, fn=fn: fn(x)) for fn in (jnp.sin, jnp.cos)]

    assert told([sin, cos], case) == (["sin", "cos"], MICRO_BATCHES)
    assert told((sin, cos), case) == (["sin", "cos"], MICRO_BATCHES)
    assert told(([sin, cos], (1, 2)), case) == (["sin", "cos"], (1, 2))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("code.py:embed", "pipeline='code.py:embed'"),
        ("code.py:embed+code.py:NUMBER", "pipeline='code.py:embed+code.py:NUMBER'"),
        ("code.py:embed+head", "pipeline is given the name 'head'"),
        ("code.py:STAGES=", "pipeline='code.py:STAGES='"),
        ("code.py:STAGES=x", "pipeline='code.py:STAGES=x'"),
        ("code.py:STAGES=0,1", "pipeline='code.py:STAGES=0,1'"),
        ("code.py:STAGE", "'code.py' has nothing called 'STAGE'"),
        ("missing.py:STAGES", "missing.py cannot be imported"),
        ("STAGES", "pipeline is given the name 'STAGES'"),
        ("+", "pipeline is given the name '+'"),
        ([jnp.sin], "pipeline=["),
        (([jnp.sin, jnp.cos], (0,)), "pipeline=(["),
        (3, "pipeline=3"),
    ],
)
def test_a_slip_is_quoted(raw: Any, said: str, case: Case) -> None:
    with pytest.raises(UsageError) as caught:
        VARIANTS["pipeline"].plan(case, raw)

    assert said in caught.value.problem
    if "cannot be imported" not in said:
        assert caught.value.expected


@pytest.mark.parametrize(
    ("args", "said"), [(("f32[8]", "f32[8]"), "2 of its arguments have arrays"), ((1.0,), "none of its arguments has")]
)
def test_exactly_one_argument_can_flow_through_stages(args: tuple[Any, ...], said: str) -> None:
    case = make_case(lambda *args: args, args, name="mine")

    with pytest.raises(UsageError, match=said) as caught:
        VARIANTS["pipeline"].plan(case, [jnp.sin, jnp.cos])

    assert "mine(" in caught.value.problem


# ---- Pipelines of stages, in real worker processes ----


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
def test_a_point_says_what_is_handed_on_and_the_formula_for_idle_devices(shared) -> None:
    found = facts(shared, "4")

    # 24 x 16 float32 at each border
    assert found["handed on:"] == f"{1.5 * (COUNT - 1):.2f} KiB in {4 * (COUNT - 1)} transfers"
    assert "wrong result:" not in found
    assert shared.signature == "f32[24,16]"
    label = "idle by the formula, if stages are equal:"
    assert facts(shared, "1")[label] == f"{100 * (COUNT - 1) / COUNT:.0f} %"
    assert facts(shared, "5") == {"not available:": "the 24 rows of x do not divide into 5 micro-batches"}
    assert "micro-batches through stages on a device each" in str(shared)


@pytest.mark.skipif(count_cores() >= COUNT, reason="more cores than the test has stages")
def test_devices_that_share_cores_are_not_timed(shared) -> None:
    assert {point.seconds for point in shared.curves[0].points} == {None}
    assert shared.curves[0].sentence.startswith(f"{COUNT} fake devices share {count_cores()} core")
    assert "times, busy and idle devices are not measured" in shared.curves[0].sentence
    assert "idle in a profile:" not in facts(shared, "1")


@pytest.mark.slow
@pytest.mark.serial
@tells_runs
def test_where_devices_are_apart_they_are_timed_and_seen_idle(monkeypatch) -> None:
    monkeypatch.setattr(pipes, "try_pipeline", pipelines_by_hand.try_unhindered)

    found = pipeline(stages(2), "f32[4096,16]", micro_batches=(1,), name="two")

    (point,) = found.curves[0].points
    told = facts(found, "1")
    assert point.seconds is not None or "not timed:" in told, told
    assert "idle in a profile:" in told, told
    # One part is on one device at a time, however long it is there: percentages are rounded.
    assert float(told["idle in a profile:"].split(" %")[0]) >= 49
    assert "2 fake devices with a thread each" in found.curves[0].sentence


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("stage", "why"),
    [
        pytest.param(lambda x: x.no_such_thing, "no_such_thing", marks=pytest.mark.slow),
        (lambda x, lock=LOCK: lock and x, "lock"),  # it cannot travel
    ],
)
def test_a_stage_that_fails_is_told(stage: Any, why: str) -> None:
    found = pipeline([jnp.sin, stage], "f32[4]")

    assert found.baseline.status == "failed"
    assert why in found.baseline.reason
    assert found.curves == ()


@pytest.mark.parametrize(
    ("given", "numbers", "what"),
    [
        *((given, (1,), "stages") for given in ([], [jnp.sin], [jnp.sin, 3], jnp.sin, [jnp.sin] * 65)),
        *(([jnp.sin, jnp.cos], numbers, "micro_batches") for numbers in ((), (0,), (1.5,), (True,), 4, "12")),
    ],
)
def test_what_are_no_stages_or_no_numbers_of_micro_batches_is_refused(given: Any, numbers: Any, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        pipeline(given, "f32[4]", micro_batches=numbers)


@pytest.mark.slow
def test_results_show_themselves_without_the_hub() -> None:
    code = "from benchax.experiments import loops; from benchax.renderers import RENDERERS; print('html' in RENDERERS)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "True"


# ---- Stages on one device, which is there twice, for what does not need several ----


def tried(fns: list[Any], x: Any, count: int, *, is_timed: bool = False) -> Point:
    chained = functools.reduce(lambda value, fn: fn(value), fns, x)
    pipe = Pipe(tuple(map(jax.jit, fns)), (jax.devices()[0],) * len(fns))
    return pipes.try_pipe(pipe, x, count, chained, is_timed=is_timed)


def test_a_stage_that_mixes_the_rows_gives_a_wrong_result_and_no_time() -> None:
    found = tried([jnp.sin, lambda x: x - x.mean()], jnp.arange(8.0), 2)

    assert found.facts[0][0] == "wrong result:"
    assert found.seconds is None


@pytest.mark.parametrize("low", [None, 1.0])
def test_a_median_without_an_interval_is_not_told(monkeypatch, low: float | None) -> None:
    monkeypatch.setattr(pipes, "time_calls", lambda call: Estimate(1.5, low, low))
    monkeypatch.setattr(pipes, "record", lambda *given: ())

    found = tried([jnp.sin, jnp.cos], jnp.arange(8.0), 2, is_timed=True)

    assert (found.seconds, found.low) == ((1.5, 1.0) if low else (None, None))
    assert ("not timed:" in dict(found.facts)) is (low is None)


@pytest.mark.parametrize(
    ("last", "x", "why"),
    [
        (jnp.sum, jnp.ones(8), "the last stage gives a scalar for each micro-batch"),
        (jnp.sin, jnp.float32(1), "x is no batch"),
    ],
)
def test_what_cannot_be_cut_or_put_together_says_so(last, x, why: str) -> None:
    assert why in dict(tried([jnp.sin, last], x, 1).facts)["not available:"]


def test_trees_pass_through() -> None:
    batch = {"a": jnp.arange(6.0), "b": jnp.ones((6, 2), jnp.int8)}

    found = dict(tried([lambda t: t, lambda t: {**t, "a": t["a"] + 1}], batch, 3).facts)

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
    assert skip_reason_of(2, 2, lambda: 1.1) == ""
    assert "all stages at once take 1.90 times as long" in skip_reason_of(2, 4, lambda: 1.9)
    assert skip_reason_of(4, 1, lambda: pytest.fail("not asked")) == "4 fake devices share 1 core"


def test_one_device_in_place_of_two_is_a_slowdown() -> None:
    pipe = Pipe((jax.jit(jnp.sin), jax.jit(jnp.sin)), (jax.devices()[0],) * 2)

    assert pipe.slowdown(jnp.ones(2**20)) > 1


@given(st.integers(2, 64), st.integers(1, 10_000))
def test_more_micro_batches_leave_a_smaller_bubble(stages: int, parts: int) -> None:
    """GPipe, figure 2 c: 4 partitions, 4 micro-batches."""
    assert 0 < bubble(stages, parts + 1) < bubble(stages, parts) <= (stages - 1) / stages
    assert bubble(4, 4) == 3 / 7


@pytest.mark.slow
def test_each_fake_device_has_one_thread_only() -> None:
    """XLA still knows the flag: it ends a process that has one it does not know."""
    code = "import jax; print(jax.jit(lambda x: x @ x)(jax.numpy.ones((2, 2)))[0, 0])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "XLA_FLAGS": ONE_THREAD}, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr
