"""The share of communication out of recordings: of traces by hand, and of fake devices that are taken for real ones."""

from __future__ import annotations

import contextlib
import re
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import meshes_by_hand
import pytest
from jax_versions import tells_runs
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import devices
from benchax.experiments.devices import Shares, describe_shares, seen_communication, shares_of
from benchax.experiments.variants import sharding
from benchax.experiments.variants.sharding import MEMBERS
from benchax.measuring.inputs import make_inputs
from benchax.model import Remark
from benchax.results.experiment import Curve
from benchax.results.profile import Device, Op, Profile

DEVICES, _ = MEMBERS
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

    assert shares_of(b"", ["cpu:0", "cpu:1"]) == Shares(0.4, 0.2, 3)


@pytest.mark.parametrize("code", devices.SPOILS)
def test_a_trace_that_lacks_something_has_no_shares(recorded, code: str) -> None:
    recorded.append(profile(code))

    with pytest.raises(NotMeasured, match=code):
        shares_of(b"", ["cpu:0", "cpu:1"])


@pytest.mark.parametrize(
    ("devices", "why"),
    [
        (BUSY[:1], "the trace has no operations of cpu:1"),
        ((Device("cpu:0", 4.0, 1.0, (), 0.0, 0.0), Device("cpu:1", 4.0, 1.0, (), 0.0, 0.0)), "none of the collectives"),
    ],
)
def test_a_device_or_a_collective_that_was_not_recorded_is_no_share_of_0(recorded, devices, why: str) -> None:
    recorded.append(profile(devices=devices))

    with pytest.raises(NotMeasured, match=why):
        shares_of(b"", ["cpu:0", "cpu:1"])


def test_the_median_recording_is_told_of_those_that_hold_all_operations(recorded) -> None:
    recorded += [profile() for _ in range(devices.PROFILES - 2)]
    recorded += [profile("open-calls"), profile("events-dropped")]

    assert seen_communication(lambda: 1, CPU) == (("communication:", "40 % of the device time, 20 % exposed"),)


def test_of_several_shares_the_median_one_is_told() -> None:
    whole = [Shares(share, share / 2, 6) for share in (0.5, 0.1, 0.3)]

    found = describe_shares([Shares(0.9, 0.9, 5), *whole, Shares(0.9, 0.9, 5), Shares(0.9, 0.9, 5)], "")

    assert found == (("communication:", "30 % of the device time, 15 % exposed"),)


@pytest.mark.parametrize(("why", "told"), [("", "the recordings differ in the number of operations"), ("so", "so")])
def test_too_few_recordings_that_hold_all_operations_say_nothing(why: str, told: str) -> None:
    found = describe_shares([Shares(0.1, 0.1, 6), Shares(0.1, 0.1, 6), Shares(0.1, 0.1, 5)], why)

    assert found == (("communication, not measured:", told),)


def test_a_profiler_that_refuses_costs_the_share_only(monkeypatch) -> None:
    def refused() -> Any:
        raise UsageError("another profiler is running", "none")

    monkeypatch.setattr(devices, "session", refused)

    assert seen_communication(lambda: 1, CPU) == (("communication, not measured:", "another profiler is running"),)


# ---- in the sweep over devices ----------------------------------------------------------------------------------


def case() -> Any:
    return make_case(lambda w, x: jnp.sin(x).mean() * w.mean(), ("f32[64,64]", "f32[48,64]"))


def test_a_program_that_exchanges_nothing_is_not_recorded(monkeypatch) -> None:
    monkeypatch.setattr(sharding, "time_calls", lambda call: (1.0, 0.5, 2.0))
    monkeypatch.setattr(sharding, "seen_communication", lambda *given: pytest.fail("recorded"))
    inputs = make_inputs(case(), 0)
    expected = jax.jit(case().fn)(*inputs.args)

    found = sharding._try_mesh(case(), sharding.plan_sharding(case(), inputs), (1, 1), inputs, expected, is_timed=True)

    assert found.facts[0] == ("exchanged:", "nothing")
    assert found.time == (1.0, 0.5, 2.0)


@pytest.mark.slow
@pytest.mark.serial
@tells_runs
def test_devices_that_are_taken_for_real_are_recorded() -> None:
    lab = ScriptedLab(answers={sharding.try_meshes: meshes_by_hand.try_recorded})

    (curve,) = DEVICES.plan(case(), "1,2")(lab)

    assert isinstance(curve, Curve)
    one, two = curve.points

    told = dict(two.facts)["communication:"]
    shares = re.fullmatch(r"([\d.]+) % of the device time, ([\d.]+) % exposed", told)
    assert shares, told
    assert 0 < float(shares[2]) <= float(shares[1]) <= 100
    assert not any(label.startswith("communication") for label, _ in one.facts)
