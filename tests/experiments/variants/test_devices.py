"""Meshes over fake devices: one real process for all that is looked at."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import meshes_by_hand
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax_versions import tells_runs
from labs_by_hand import ScriptedLab
from stack_depths import count_frames, under
from xspace_by_hand import Event, op, plane, space

from benchax.case import make_case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import find_batch
from benchax.experiments.variant import Asked
from benchax.experiments.variants import VARIANTS, devices
from benchax.experiments.variants.devices import (
    COMMUNICATION,
    IDLE,
    LEAST_READINGS,
    DeviceRecording,
    describe_middle,
    idle_of,
    read_meshes,
    record,
    shares_of,
    time_calls,
)
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import Estimate, Remark
from benchax.results.experiment import Curve, VariantRow
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
        "the batch is the 4 rows of x, guessed: the outputs grow with them (else: batch=NAME)"
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


DEVICES = VARIANTS["devices"]
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
        *((code, BUSY, code) for code in devices.SPOILS),
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
    lab = ScriptedLab(answers={devices.try_meshes: meshes_by_hand.try_recorded})

    (curve,) = DEVICES.plan(case(), "1,2")(lab)

    assert isinstance(curve, Curve)
    one, two = curve.points

    told = dict(two.facts)["communication:"]
    shares = re.fullmatch(r"([\d.]+) % of the device time, ([\d.]+) % exposed", told)
    assert shares, told
    assert 0 < float(shares[2]) <= float(shares[1]) <= 100
    assert not any(label.startswith("communication") for label, _ in one.facts)


# ---- Idle devices in traces made by hand ----


US = 10**6
"""Picoseconds."""


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
        (op("a", 0, US, _p=1), ["cpu:0"], "does not say when some operations ended"),
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
