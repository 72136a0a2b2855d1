"""Batches of examples; run times by hand, functions for real."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from comparisons_by_hand import compared
from labs_by_hand import ScriptedLab, outputs, swept

from benchax.errors import UsageError
from benchax.experiments.variants import vectorize
from benchax.experiments.variants.vectorize import Vectorize, beside_each_other, knee, step_gain
from benchax.model import Numerics


def layer(x: Any, w: Any) -> Any:
    return jnp.tanh(x @ w)


def test_all_four_ways_give_the_same_for_every_example() -> None:
    lab = ScriptedLab()
    swept(Vectorize(), "x=1..4", layer, "f32[8]", "f32[8,8]", lab=lab)

    for name in list(vectorize.TITLES)[1:]:
        loop, other = lab.outputs(f"{name}, batch 4")
        assert loop.shape == (4, 8)
        assert jnp.allclose(loop, other, rtol=1e-5)
    cases = {name: lab.pairs[f"{name}, batch 4"].other for name in list(vectorize.TITLES)[1:]}
    assert {name: case.jit for name, case in cases.items()} == {
        "vmap: eager": False, "vmap: jit(vmap)": True, "vmap: vmap(jit)": False
    }  # fmt: skip
    assert outputs(lab.pairs["batch 4"].one).shape == (2, 8)


def test_the_knee_comes_from_paired_steps() -> None:
    lab = ScriptedLab({"batch 2": 1.0, "batch 4": 1.1, "batch 8": 1.95, "batch 16": 2.0})
    _, curves = swept(Vectorize(), "x=1..16", layer, "f32[8]", "f32[8,8]", lab=lab)

    curve = curves["vmap"]
    assert curve.knee == 4
    assert curve.sentence.startswith("knee at 4: no larger batch")
    assert [point.x for point in curve.points] == [1, 2, 4, 8, 16]
    assert "2.00× (1.98 – 2.02) that of 1" in dict(curve.points[1].facts)["throughput:"]


@pytest.mark.parametrize(
    ("gains", "expected"),
    [
        ([2, 2, 2], None),
        ([2, 1.05, 1.01], 2),
        ([2, 0.8, 1.3], 2),
        ([2, 0.8, 1.5], None),  # what a later size makes up for was no knee
        ([1, 1, 1], 1),
        ([1.06, 1.06, 1.0], 2),
        ([2, None, 1], None),
        ([], None),
    ],
)
def test_a_knee_is_where_no_larger_size_has_a_tenth_more(gains: list[float | None], expected: int | None) -> None:
    assert knee([1, 2, 4, 8][: len(gains) + 1], gains) == expected


def test_a_gain_turns_the_interval_round() -> None:
    gain = step_gain(compared(1, 1.25), 2.0)

    assert gain == pytest.approx((1.6, 1.6 / 1.01, 1.6 / 0.99))


def test_where_throughput_still_grows_there_is_no_knee() -> None:
    _, curves = swept(Vectorize(), "x=1,2", layer, "f32[8]", "f32[8,8]")

    assert curves["vmap"].knee is None
    assert "still grew at the last step, by 100 %" in curves["vmap"].sentence


def test_outputs_unlike_those_of_the_loop_are_wrong() -> None:
    wrong = compared(1, 0.5, numerics=Numerics("baseline", agrees=False, why="the output at [0] differs"))

    row = vectorize._judge_batch("vmap: eager", wrong, 4)  # pyright: ignore[reportPrivateUsage]

    assert row.status == "wrong_result"
    assert "unlike the loop" in row.reason


def test_one_size_is_a_point_without_a_knee() -> None:
    rows, curves = swept(Vectorize(), "4", lambda x: x + 1, "f32[8]")

    assert len(rows) == 4
    assert curves["vmap"].points[0].seconds == pytest.approx(1e-5)
    assert not curves["vmap"].sentence


def test_python_loops_run_at_three_sizes_at_most() -> None:
    assert beside_each_other([1, 2, 4, 8, 16]) == [1, 4, 16]
    assert beside_each_other([3]) == [3]


def test_an_unknown_argument_is_quoted() -> None:
    with pytest.raises(UsageError, match="'y'"):
        swept(Vectorize(), "y=1..4", layer, "f32[8]", "f32[8,8]")
