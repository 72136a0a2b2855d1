"""Meshes and pipelines over several devices, which are fake ones in real processes."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from devices_by_hand import try_recorded, try_unhindered
from functions_by_hand import count_frames, under
from hypothesis import given
from hypothesis import strategies as st
from jax_versions import tells_runs
from labs_by_hand import ScriptedLab
from xspace_by_hand import US, Event, op, plane, space

from benchax.case import Case, make_case
from benchax.discovery import target_cases
from benchax.environment import count_cores
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments import pipeline
from benchax.experiments.functions import find_batch
from benchax.experiments.variant import Asked
from benchax.experiments.variants import VARIANTS, devices
from benchax.experiments.variants.devices import (
    COMMUNICATION,
    IDLE,
    LEAST_READINGS,
    MICRO_BATCHES,
    ONE_THREAD,
    DeviceRecording,
    Pipe,
    bubble,
    describe_middle,
    idle_of,
    read_meshes,
    read_stages,
    record,
    shares_of,
    skip_reason_of,
    time_calls,
)
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import Estimate, Remark
from benchax.profiling.trace import SPOILS
from benchax.results.experiment import Curve, Experiment, Point, VariantRow
from benchax.results.profile import Device, Op, Profile

DEVICES, MESH = VARIANTS["devices"], VARIANTS["mesh"]


def loss(weights, x, power):
    for w in weights:
        x = jnp.tanh(x @ w)
    return (x**power).mean()


# One argument is an array: it must not start the backend in the worker before there are several devices.
CASE = make_case(loss, (["f32[64,64]", jnp.full((64, 64), 0.1)], "f32[48,64]", 2), static=(2,))


@pytest.fixture(scope="module")
def curve() -> Any:
    (curve,) = MESH.plan(CASE, "1x1,4x1,2x2,5x1")(ScriptedLab())
    return curve


def facts(curve: Any, label: str) -> dict[str, str]:
    (point,) = [point for point in curve.points if point.label == label]
    return dict(point.facts)


def test_a_point_says_what_is_exchanged_held_and_computed(curve) -> None:
    found = {label: facts(curve, label) for label in ("1x1", "4x1", "2x2", "5x1")}

    assert found["1x1"]["exchanged:"] == "nothing"
    assert found["4x1"]["exchanged:"] == "1 all-reduce, 4 B per device"
    assert "all-gather" in found["2x2"]["exchanged:"]
    # 2 matrices of 16 KiB, and a quarter of 12 KiB; half of 2 matrices, and half of the batch
    assert found["4x1"]["each device holds"].startswith("35.0 KiB of arguments")
    assert found["2x2"]["each device holds"].startswith("22.0 KiB of arguments")
    assert found["5x1"]["not available:"] == "the 48 rows of x do not divide among 5 devices"
    assert not any("wrong result:" in point for point in found.values())
    # 2 products of 48 x 64 x 64 x 2 operations are 786 k, and a little around them; a quarter of it on each of four
    alone, apart = found["1x1"]["computes"], found["4x1"]["computes"]
    assert alone.endswith("kFLOP per device")
    assert 786 < float(alone.split()[0]) < 850
    assert 196 < float(apart.split()[0]) < 213
    assert "kFLOP per device for 4 B exchanged: " in apart
    assert apart.endswith(" kFLOP/B")
    assert float(apart.split()[-2]) == pytest.approx(float(apart.split()[0]) / 4, rel=0.01)
    # Times of fake devices are not told.
    assert {point.seconds for point in curve.points} == {None}
    assert "5 fake devices share" in curve.sentence
    assert "times and the share of communication in them are not measured" in curve.sentence


@pytest.mark.parametrize(
    ("flops", "size_bytes", "is_exact", "expected"),
    [
        (84e6, 2**17, True, "84.0 MFLOP per device for 128 KiB exchanged: 641 FLOP/B"),
        (84e6, None, False, "about 84.0 MFLOP per device"),
        (None, 4, False, "operations that benchax can't count, in custom calls"),
    ],
)
def test_what_is_not_known_of_work_or_exchange_is_left_out(flops, size_bytes, is_exact: bool, expected: str) -> None:
    assert devices._work(flops, size_bytes, is_exact=is_exact) == expected


@pytest.mark.slow
def test_a_function_that_fails_is_a_row() -> None:
    measure = DEVICES.plan(make_case(lambda x: x.no_such_thing, ("f32[8]",)), "2")

    (found,) = measure(ScriptedLab())

    assert isinstance(found, VariantRow)
    assert found.status == "failed"
    assert "no_such_thing" in found.reason


def matmul(x, w):
    """The one of the guide to sharding, whose second argument is not the batch."""
    return x @ w


@pytest.mark.slow
def test_the_curve_says_what_was_cut_and_that_it_was_guessed() -> None:
    case = make_case(matmul, ("f32[4,4]", "f32[4,4]"))

    (guessed,) = DEVICES.plan(case, "2")(ScriptedLab())
    (told,) = DEVICES.plan(case, "2", batch="x")(ScriptedLab())

    assert guessed.sentence.startswith(
        "the batch is the 4 rows of x, guessed: the outputs grow with them (otherwise: batch=NAME)"
    )
    assert told.sentence.startswith("the batch is the 4 rows of x, as given; ")
    assert dict(told.points[0].facts)["exchanged:"] == "nothing"


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (make_case(abs, (1.0,)), "no argument is a batch"),
        (make_case(abs, ("f32[]",)), "no argument is a batch"),
        (CASE.eager(), "only a jitted function"),
    ],
)
def test_without_rows_or_operation_by_operation_nothing_can_be_cut(case, why: str) -> None:
    with pytest.raises(NotAvailable, match=why):
        DEVICES.plan(case)


@pytest.mark.parametrize(
    ("variant", "text", "expected"),
    [(DEVICES, " 2,8, 2", {"2": (2, 1), "8": (8, 1)}), (MESH, "4x2,1x64", {"4x2": (4, 2), "1x64": (1, 64)})],
)
def test_meshes_are_read_each_once(variant, text: str, expected: Any) -> None:
    assert read_meshes(Asked(variant, CASE, text), "1") == expected


@given(st.text("-.x,² ", max_size=6) | st.sampled_from(["0", "65", "1,", "2x", "8x16", "2x2x2", "0x4", "1e3"]))
def test_what_is_no_mesh_is_refused(text: str) -> None:
    for variant in (DEVICES, MESH):
        with pytest.raises(UsageError) as error:
            read_meshes(Asked(variant, CASE, text), "1")
        assert repr(text) in error.value.problem


# ---- The share of communication: of traces by hand, and of fake devices that are taken for real ones ----


CPU = [SimpleNamespace(platform="cpu", id=0), SimpleNamespace(platform="cpu", id=1)]
BUSY = Device("cpu:0", 4.0, 1.0, (), 1.0, 0.5), Device("cpu:1", 6.0, 1.0, (), 3.0, 1.5)


def profile(*remarks: str, devices: tuple[Device, ...] = BUSY) -> Profile:
    op = Op("all-reduce.1", "jit_f", "all-reduce", 3, 1.0, 1.0, 1.0)
    return Profile("", "cpu", (op,), devices, remarks=tuple(Remark(code, "warning", code) for code in remarks))


@pytest.fixture
def recorded(monkeypatch) -> list[Profile]:
    """What the next recordings are read as."""
    made: list[Profile] = []
    monkeypatch.setattr(devices, "session", lambda: contextlib.nullcontext(SimpleNamespace(xspace=b"")))
    monkeypatch.setattr(devices, "profile_of", lambda xspace: made.pop())
    return made


def test_shares_are_those_of_all_devices_together(recorded) -> None:
    recorded.append(profile("unverified"))

    assert shares_of(b"", ["cpu:0", "cpu:1"]) == DeviceRecording(0.4, "40 % of the device time, 20 % exposed", 3)


@pytest.mark.parametrize(
    ("codes", "devices", "why"),
    [
        *((code, BUSY, code) for code in (*SPOILS, *devices.SPOIL_COMMUNICATION)),
        ("", BUSY[:1], "the trace has no operations of cpu:1"),
        ("", tuple(Device(f"cpu:{i}", 4.0, 1.0, (), 0.0, 0.0) for i in (0, 1)), "none of the collectives"),
    ],
)
def test_a_trace_that_lacks_something_has_no_shares(recorded, codes: str, devices, why: str) -> None:
    recorded.append(profile(*filter(None, [codes]), devices=devices))

    with pytest.raises(NotMeasured, match=why):
        shares_of(b"", ["cpu:0", "cpu:1"])


def test_the_median_recording_is_told_of_those_that_hold_all_operations(recorded) -> None:
    recorded += [profile() for _ in range(devices.PROFILES - 2)]
    recorded += [profile("open-calls"), profile("events-dropped")]

    found = record(lambda: 1, CPU, COMMUNICATION, shares_of)

    assert found == (("communication:", "40 % of the device time, 20 % exposed"),)


@pytest.mark.parametrize(("why", "told"), [("", "the recordings differ in the number of operations"), ("so", "so")])
def test_too_few_recordings_that_hold_all_operations_say_nothing(why: str, told: str) -> None:
    recorded = [DeviceRecording(0.1, "0.1", operations) for operations in (6, 6, 5)]

    assert describe_middle(COMMUNICATION, recorded, why) == (("communication, not measured:", told),)
    assert describe_middle(IDLE, recorded, why) == (("idle, not measured:", told),)


def test_a_profiler_that_refuses_costs_the_share_only(monkeypatch) -> None:
    def refused() -> Any:
        raise UsageError("another profiler is running", "none")

    monkeypatch.setattr(devices, "session", refused)

    found = record(lambda: 1, CPU, COMMUNICATION, shares_of)

    assert found == (("communication, not measured:", "another profiler is running"),)


# ---- in the sweep over devices ----------------------------------------------------------------------------------


def case() -> Any:
    return make_case(lambda w, x: jnp.sin(x).mean() * w.mean(), ("f32[64,64]", "f32[48,64]"))


def test_a_program_that_exchanges_nothing_is_not_recorded(monkeypatch) -> None:
    monkeypatch.setattr(devices, "time_calls", lambda call: Estimate(1.0, 0.5, 2.0))
    monkeypatch.setattr(devices, "record", lambda *given: pytest.fail("recorded"))
    inputs = make_inputs(case(), 0)
    expected = jax.jit(case().fn)(*inputs.args)

    call, batch = program_of(case()).call, find_batch(case(), inputs)

    found, time = devices._try_mesh(call, batch, (1, 1), inputs, expected, is_timed=True)

    assert found[0] == ("exchanged:", "nothing")
    assert time == Estimate(1.0, 0.5, 2.0)


@pytest.mark.slow
@pytest.mark.serial
@tells_runs
def test_devices_that_are_taken_for_real_are_recorded() -> None:
    lab = ScriptedLab(answers={devices.try_meshes: try_recorded})

    (curve,) = DEVICES.plan(case(), "1,2")(lab)

    assert isinstance(curve, Curve)
    one, two = curve.points

    told = dict(two.facts)["communication:"]
    shares = re.fullmatch(r"([\d.]+) % of the device time, ([\d.]+) % exposed", told)
    assert shares, told
    assert 0 < float(shares[2]) <= float(shares[1]) <= 100
    assert not any(label.startswith("communication") for label, _ in one.facts)


# ---- Idle devices in traces made by hand ----


def trace(*events: Event) -> bytes:
    return space(plane("/host:CPU", {"pool": events}))


def test_a_device_is_idle_before_its_first_operation_and_behind_its_last() -> None:
    recorded = trace(
        op("a", 0, 4 * US),
        op("a", 5 * US, US),
        op("b", 2 * US, 6 * US, device_ordinal=1, run_id=2),
        op("b", 9 * US, US, device_ordinal=1, run_id=3),
    )

    span_s, text, count = idle_of(recorded, ["cpu:1", "cpu:0"])

    assert span_s == pytest.approx(10e-6)
    assert text == "40 % (by device 30 %, 50 %)"
    assert count == 4


@pytest.mark.parametrize(
    ("event", "devices", "why"),
    [
        (op("a", 0, US), ["cpu:0", "cpu:1"], "no operations of cpu:1"),
        (op("a", 0, US, _p=1), ["cpu:0"], "had not ended when the recording did"),
    ],
)
def test_a_trace_without_a_device_or_an_end_has_no_idle_time(event: Event, devices: list[str], why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        idle_of(trace(event), devices)


# ---- Calls over several devices are timed like any others: what stands above them in the program does not count ----


def test_calls_are_timed_without_the_frames_of_whoever_asks() -> None:
    depths: list[int] = []

    under(100, lambda: time_calls(lambda: depths.append(count_frames()), enough_s=0.0))

    assert depths == [3] * LEAST_READINGS  # the call itself, `time_calls`, and what serves the fresh stack


# ---- pipeline --------------------------------------------------------------------------------------------------------

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


def told(raw: Any, case_of_stages: Case) -> tuple[list[str], tuple[int, ...]]:
    """Names of the stages, and numbers of micro-batches."""
    stages, numbers = read_stages(Asked(VARIANTS["pipeline"], case_of_stages, raw))
    return [stage.__name__ for stage in stages], numbers


def measured(case_of_stages: Case, raw: Any) -> Any:
    (found,) = VARIANTS["pipeline"].plan(case_of_stages, raw)(ScriptedLab())
    return found


@pytest.fixture
def case_of_stages(project: Path) -> Case:
    (project / "code.py").write_text(FILE)
    return target_cases("code.py:net", ["f32[8,4]"])[0]


@pytest.mark.slow
def test_stages_by_name_give_what_the_function_gives(case_of_stages: Case) -> None:
    found = measured(case_of_stages, "code.py:STAGES=1,3")

    assert isinstance(found, Curve)
    facts_of_stages = [dict(point.facts) for point in found.points]
    assert facts_of_stages[0]["handed on:"] == "128 B in 1 transfer"
    assert "wrong result:" not in facts_of_stages[0]
    assert facts_of_stages[1] == {"not available:": "the 8 rows of x do not divide into 3 micro-batches"}
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
def test_stages_are_named_one_by_one_or_as_a_list(raw: str, numbers: tuple[int, ...], case_of_stages: Case) -> None:
    assert told(raw, case_of_stages) == (["embed", "head"], numbers)


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
    case_of_stages = make_case(net, ("f32[8]",))
    sin, cos = [functools.wraps(fn)(lambda x, fn=fn: fn(x)) for fn in (jnp.sin, jnp.cos)]

    assert told([sin, cos], case_of_stages) == (["sin", "cos"], MICRO_BATCHES)
    assert told((sin, cos), case_of_stages) == (["sin", "cos"], MICRO_BATCHES)
    assert told(([sin, cos], (1, 2)), case_of_stages) == (["sin", "cos"], (1, 2))


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
def test_a_slip_is_quoted(raw: Any, said: str, case_of_stages: Case) -> None:
    with pytest.raises(UsageError) as caught:
        VARIANTS["pipeline"].plan(case_of_stages, raw)

    assert said in caught.value.problem
    if "cannot be imported" not in said:
        assert caught.value.expected


@pytest.mark.parametrize(
    ("args", "said"), [(("f32[8]", "f32[8]"), "2 of its arguments have arrays"), ((1.0,), "none of its arguments has")]
)
def test_exactly_one_argument_can_flow_through_stages(args: tuple[Any, ...], said: str) -> None:
    case_of_stages = make_case(lambda *args: args, args, name="mine")

    with pytest.raises(UsageError, match=said) as caught:
        VARIANTS["pipeline"].plan(case_of_stages, [jnp.sin, jnp.cos])

    assert "mine(" in caught.value.problem


# ---- Pipelines of stages, in real worker processes ----


COUNT = min(count_cores() + 1, 8)
"""Of stages; with one more than there are cores, their devices share some."""


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def stages(count: int) -> list[Any]:
    return [functools.partial(layer, jnp.full((16, 16), 0.01 * i)) for i in range(1, count + 1)]


@pytest.fixture(scope="module")
def shared() -> Experiment:
    return pipeline(stages(COUNT), "f32[24,16]", micro_batches=(1, 4, 5))


@pytest.mark.slow
def test_a_point_says_what_is_handed_on_and_the_formula_for_idle_devices(shared) -> None:
    found = facts(shared.curves[0], "4")

    # 24 x 16 float32 at each border
    assert found["handed on:"] == f"{1.5 * (COUNT - 1):.2f} KiB in {4 * (COUNT - 1)} transfers"
    assert "wrong result:" not in found
    assert shared.signature == "f32[24,16]"
    label = "idle by the formula, if stages are equal:"
    assert facts(shared.curves[0], "1")[label] == f"{100 * (COUNT - 1) / COUNT:.0f} %"
    assert facts(shared.curves[0], "5") == {"not available:": "the 24 rows of x do not divide into 5 micro-batches"}
    assert "micro-batches through stages, each on its own device" in str(shared)


@pytest.mark.skipif(count_cores() >= COUNT, reason="more cores than the test has stages")
def test_devices_that_share_cores_are_not_timed(shared) -> None:
    assert {point.seconds for point in shared.curves[0].points} == {None}
    assert f"; {COUNT} fake devices share {count_cores()} core" in shared.curves[0].sentence
    assert "times, busy and idle devices are not measured" in shared.curves[0].sentence
    assert "idle in a profile:" not in facts(shared.curves[0], "1")


@pytest.mark.slow
@pytest.mark.serial
@tells_runs
def test_where_devices_are_apart_they_are_timed_and_seen_idle(monkeypatch) -> None:
    monkeypatch.setattr(devices, "try_pipeline", try_unhindered)

    found = pipeline(stages(2), "f32[4096,16]", micro_batches=(1,), name="two")

    (point,) = found.curves[0].points
    told = facts(found.curves[0], "1")
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


# ---- Stages on one device, which is there twice, for what does not need several ----


def tried(fns: list[Any], x: Any, count: int, *, is_timed: bool = False) -> Point:
    chained = functools.reduce(lambda value, fn: fn(value), fns, x)
    pipe = Pipe(tuple(map(jax.jit, fns)), (jax.devices()[0],) * len(fns))
    return devices.try_pipe(pipe, x, count, chained, is_timed=is_timed)


def test_a_stage_that_mixes_the_rows_gives_a_wrong_result_and_no_time() -> None:
    found = tried([jnp.sin, lambda x: x - x.mean()], jnp.arange(8.0), 2)

    assert found.facts[0][0] == "wrong result:"
    assert found.seconds is None


@pytest.mark.parametrize("low", [None, 1.0])
def test_a_median_without_an_interval_is_not_told(monkeypatch, low: float | None) -> None:
    monkeypatch.setattr(devices, "time_calls", lambda call: Estimate(1.5, low, low))
    monkeypatch.setattr(devices, "record", lambda *given: ())

    found = tried([jnp.sin, jnp.cos], jnp.arange(8.0), 2, is_timed=True)

    assert (found.seconds, found.low) == ((1.5, 1.0) if low else (None, None))
    assert ("not timed:" in dict(found.facts)) is (low is None)


@pytest.mark.parametrize(
    ("last", "x", "why"),
    [
        (jnp.sum, jnp.ones(8), "the last stage returns a scalar for each micro-batch"),
        (jnp.sin, jnp.float32(1), "x isn't a batch"),
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
