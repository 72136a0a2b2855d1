"""Strong and weak scaling: what a gain is, from where on devices do not pay, and what cannot be scaled."""

from __future__ import annotations

import json
import math
import os
import sys
from typing import Any

import pytest
import warm_python
from measurement_strategies import HOST
from refusals import refusal

import benchax
from benchax.case import Case, make_case
from benchax.measuring import scaling
from benchax.measuring.scaling import growing_axis, read_counts
from benchax.model import CaseId, Estimate
from benchax.reporting import terminal
from benchax.reporting.experiment import document_of_scaling as document
from benchax.results.experiment import Scaling, ScalingCurve, ScalingPoint


def running(devices: int, seconds: float, work: float = 1.0) -> Any:
    """A count whose samples lie within a thousandth of `seconds`, in three blocks."""
    blocks = [[seconds * (1 + 1e-3 * math.sin(7 * i + devices + b)) for i in range(12)] for b in range(3)]
    unused: Any = None
    return scaling._Running(ScalingPoint(devices, ""), work, unused, unused, blocks)


@pytest.mark.parametrize(("seconds", "work"), [(0.5e-3, 1.0), (1e-3, 2.0)], ids=["strong", "weak"])
def test_half_the_time_or_twice_the_work_on_twice_the_devices_is_all_that_they_could_give(
    seconds: float, work: float
) -> None:
    one, two = running(1, 1e-3), running(2, seconds, work)

    found = scaling._judge(two, one, one)

    assert found.throughput is not None
    assert found.efficiency is not None
    assert found.throughput.value == pytest.approx(2, rel=0.01)
    assert found.efficiency.value == pytest.approx(1, rel=0.01)
    assert (found.efficiency.low or 2) < found.efficiency.value < (found.efficiency.high or 0)
    assert found.pays


@pytest.mark.parametrize(
    ("gain", "pays"),
    [(Estimate(1.5, 1.4, 1.6), True), (Estimate(0.9, 0.8, 1.0), False), (Estimate(1.1, 0.9, 1.3), None)],
)
def test_a_count_pays_where_the_whole_interval_says_so(gain: Estimate, pays: bool | None) -> None:
    assert ScalingPoint(2, "", gain=gain).pays is pays


CURVE = ScalingCurve(
    "strong",
    (
        ScalingPoint(1, "data=1", median_s=8e-3),
        ScalingPoint(2, "data=2", median_s=4e-3, gain=Estimate(2.0, 1.9, 2.1)),
        ScalingPoint(3, "data=3", why="7 does not divide"),
        ScalingPoint(4, "data=4", median_s=4e-3, gain=Estimate(1.0, 0.9, 1.1)),
    ),
)


def test_the_first_count_that_does_not_clearly_do_more_is_named() -> None:
    assert (CURVE.last_that_pays, CURVE.first_that_does_not_pay) == (2, 4)
    text = terminal.to_text(document(Scaling(CaseId("f"), HOST, "data", True, (CURVE,))))
    assert text.startswith("f: strong scaling pays up to 2 fake devices: 4 don't clearly get more done in a second\n")
    assert "not measured, because 7 does not divide" in text
    curve = ScalingCurve("weak", CURVE.points[:2])
    assert (curve.last_that_pays, curve.first_that_does_not_pay) == (2, None)


@pytest.mark.parametrize("given", ["", "1", "2,2", "1,x", "0,1", [1], "1,,2"])
def test_what_are_no_counts_is_refused(given: Any) -> None:
    assert refusal(read_counts, given) == (
        f"cannot read {given!r} as numbers of devices\nexpected two or more from 1 up, such as 1,2,4,8"
    )


def case(*inputs: str, mesh: str | None = None) -> Case:
    return make_case(lambda *xs: xs[0], inputs, name="f", mesh=mesh)


def test_the_axis_that_the_mesh_leaves_open_grows() -> None:
    assert growing_axis(case("f32[8@data,4@model]", mesh="model=2")) == ("data", {"model": 2})


def test_what_cannot_grow_and_more_devices_than_there_are_are_refused_with_the_way_out(snapshot: Any) -> None:
    fixed = {"none": case("f32[8]"), "two": case("f32[8@data,4@model]"), "all": case("f32[8@data]", mesh="data=2")}

    found = {name: refusal(growing_axis, what) for name, what in fixed.items()}
    found["more devices"] = refusal(benchax.scaling, lambda x: x, "f32[8@data]")

    assert found == snapshot


@pytest.mark.slow
def test_a_function_is_scaled_from_the_command_line() -> None:
    command = (sys.executable, "-m", "benchax.cli.main", "run", "jax.numpy:matmul", "f32[60@data,32]", "f32[32,32]")
    environ = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    more = ("--devices", "1,2,4", "--max-time", "0.05", "--json")
    out = warm_python.run([*command, *more], env=environ)

    assert out.returncode == 0, out.stderr
    found = json.loads(out.stdout)
    strong, weak = found["curves"]
    assert [p["signature"] for p in strong["points"]] == [
        "f32[60,32], f32[32,32]", "f32[60@data,32], f32[32,32]", "f32[60@data,32], f32[32,32]",
    ]  # fmt: skip
    assert [p["signature"] for p in weak["points"]][1:] == [
        "f32[120@data,32], f32[32,32]",
        "f32[240@data,32], f32[32,32]",
    ]
    assert all(p["efficiency"] for curve in (strong, weak) for p in curve["points"][1:])
    assert found["is_fake"]
    assert [r["code"] for r in found["remarks"]] == ["fake-devices"]
