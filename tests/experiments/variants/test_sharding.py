"""Meshes over fake devices: one real process for all that is looked at."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.variants import sharding
from benchax.experiments.variants.sharding import MEMBERS, plan_sharding
from benchax.measuring.inputs import make_inputs
from benchax.results.experiment import VariantRow

DEVICES, MESH = MEMBERS


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


@pytest.mark.slow
def test_one_device_exchanges_nothing(curve) -> None:
    assert facts(curve, "1x1")["exchanged:"] == "nothing"


@pytest.mark.slow
def test_a_batch_over_four_devices_needs_one_sum_of_one_number(curve) -> None:
    found = facts(curve, "4x1")

    assert found["exchanged:"] == "1 all-reduce, 4 B per device"
    # 2 matrices of 16 KiB, and a quarter of 12 KiB
    assert found["each device holds"].startswith("35.0 KiB of arguments")


def test_matrices_over_the_second_axis_are_held_in_parts(curve) -> None:
    found = facts(curve, "2x2")

    # half of 2 matrices, and half of the batch
    assert found["each device holds"].startswith("22.0 KiB of arguments")
    assert "all-gather" in found["exchanged:"]


def test_operations_of_a_device_stand_against_what_it_exchanges(curve) -> None:
    alone, apart = facts(curve, "1x1")["computes"], facts(curve, "4x1")["computes"]

    # 2 products of 48 x 64 x 64 x 2 operations are 786 k, and a little around them; a quarter of it on each of four
    assert alone.endswith("kFLOP per device")
    assert 786 < float(alone.split()[0]) < 850
    assert 196 < float(apart.split()[0]) < 213
    assert "kFLOP per device for 4 B exchanged: " in apart
    assert apart.endswith(" kFLOP/B")
    assert float(apart.split()[-2]) == pytest.approx(float(apart.split()[0]) / 4, rel=0.01)


@pytest.mark.parametrize(
    ("flops", "size_bytes", "is_exact", "expected"),
    [
        (84e6, 2**17, True, "84.0 MFLOP per device for 128 KiB exchanged: 641 FLOP/B"),
        (84e6, None, False, "about 84.0 MFLOP per device"),
        (None, 4, False, "operations that nobody can count, in custom calls"),
    ],
)
def test_what_is_not_known_of_work_or_exchange_is_left_out(flops, size_bytes, is_exact: bool, expected: str) -> None:
    assert sharding._work(flops, size_bytes, is_exact=is_exact) == expected


def test_results_are_those_of_one_device(curve) -> None:
    assert not any("wrong result:" in dict(point.facts) for point in curve.points)


def test_a_mesh_that_does_not_fit_the_batch_says_why_and_the_others_go_on(curve) -> None:
    assert facts(curve, "5x1")["not available:"] == "the 48 rows of x do not divide among 5 devices"


def test_times_of_fake_devices_are_not_told(curve) -> None:
    assert {point.seconds for point in curve.points} == {None}
    assert "5 fake devices share" in curve.sentence
    assert "times and the share of communication in them are not measured" in curve.sentence


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


@pytest.mark.parametrize("given", ["", "x", "0"])
def test_of_a_product_the_first_factor_is_cut(given: str) -> None:
    case = make_case(jax.jit(matmul), ("f32[64,32]", "f32[32,16]"))

    plan = plan_sharding(case, make_inputs(case, 0), given)

    assert (plan.batch.arguments, plan.others) == ((0,), (1,))


@pytest.mark.slow
def test_the_curve_says_what_was_cut_and_that_it_was_guessed() -> None:
    case = make_case(matmul, ("f32[4,4]", "f32[4,4]"))

    (guessed,) = DEVICES.plan(case, "2")(ScriptedLab())
    (told,) = DEVICES.with_batch("x").plan(case, "2")(ScriptedLab())

    assert guessed.sentence.startswith(
        "cut are the 4 rows of x, guessed: the outputs grow with them (else: batch=NAME)"
    )
    assert told.sentence.startswith("cut are the 4 rows of x, as given; ")
    assert dict(told.points[0].facts)["exchanged:"] == "nothing"


@pytest.mark.parametrize("case", [make_case(abs, (1.0,)), make_case(abs, ("f32[]",))])
def test_without_rows_nothing_can_be_cut(case) -> None:
    with pytest.raises(NotAvailable, match="no argument is a batch"):
        DEVICES.plan(case)


@pytest.mark.parametrize(
    ("variant", "text", "expected"),
    [(DEVICES, " 2,8, 2", ((2, 1), (8, 1))), (MESH, "4x2,1x64", ((4, 2), (1, 64)))],
)
def test_meshes_are_read_each_once(variant, text: str, expected: Any) -> None:
    assert variant.shapes(text) == expected


@given(st.text("-.x,² ", max_size=6) | st.sampled_from(["0", "65", "1,", "2x", "8x16", "2x2x2", "0x4", "1e3"]))
def test_what_is_no_mesh_is_refused(text: str) -> None:
    for variant in MEMBERS:
        with pytest.raises(UsageError) as error:
            variant.shapes(text)
        assert repr(text) in error.value.problem


def test_operation_by_operation_nothing_is_split() -> None:
    with pytest.raises(NotAvailable, match="only a jitted function"):
        DEVICES.plan(CASE.eager())
