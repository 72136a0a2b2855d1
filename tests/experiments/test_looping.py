"""A loop in five ways; looked at in a real worker, run times by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import pytest
from labs_by_hand import ScriptedLab, outputs

from benchax.case import make_case
from benchax.errors import UsageError
from benchax.experiments import loops
from benchax.experiments.lab import Lab
from benchax.experiments.variants.loops import MOST_UNROLLED, InPython, measure_loop
from benchax.results.experiment import Experiment


def step(i: Any, state: Any) -> Any:
    return jnp.sin(state) + i


def found(step: Any, init: Any, n: int | Callable[[Any], Any], lab: Lab) -> Experiment:
    case = make_case(InPython(step, n), (init,), name="step", jit=False)
    return measure_loop(case, step, n, lab)


def test_five_ways_give_the_same_state() -> None:
    lab = ScriptedLab({"lax-loop": 0.1})
    e = found(step, "f32[8]", 5, lab)

    assert [row.name for row in e.rows] == ["inner-jit", "lax-loop", "unrolled", "scan"]
    assert {row.status for row in e.rows} == {"ok"}
    assert e.row("lax-loop").comparison is not None
    plain, _ = lab.outputs("scan")
    state = None
    for name in ("inner-jit", "lax-loop", "unrolled", "scan"):
        state = outputs(lab.pairs[name].other)
        assert jnp.allclose(state, plain, rtol=1e-5)
    assert {name: pair.other.jit for name, pair in lab.pairs.items()} == {
        "inner-jit": False, "lax-loop": True, "unrolled": True, "scan": True
    }  # fmt: skip
    assert e.baseline.errors is not None
    assert e.baseline.errors.reference == "float64"
    assert e.row("scan").flops is None
    assert e.row("unrolled").flops


def test_a_condition_has_neither_scan_nor_unrolling() -> None:
    lab = ScriptedLab()
    e = found(lambda i, s: s * 2 + i, jnp.float32(1.0), lambda s: s < 100, lab)

    assert {row.name: row.status for row in e.rows} == {
        "inner-jit": "ok", "lax-loop": "ok", "unrolled": "not_available", "scan": "not_available"
    }  # fmt: skip
    assert "not known while tracing" in e.row("scan").reason
    plain, lax = lab.outputs("lax-loop")
    assert plain == lax
    assert plain >= 100


def test_a_body_that_cannot_be_traced_fails_in_its_rows_and_the_loop_itself_stays() -> None:
    e = found(lambda i, s: s + 1 if s.sum() > 0 else s - 1, "f32[8]", 3, ScriptedLab())

    assert e.baseline.status == "ok"
    assert {row.status for row in e.rows} == {"failed"}
    assert "TracerBoolConversionError" in e.row("scan").reason


def test_long_loops_are_not_unrolled() -> None:
    e = found(step, "f32[2]", MOST_UNROLLED + 1, ScriptedLab())

    assert e.row("unrolled").status == "not_available"
    assert str(MOST_UNROLLED + 1) in e.row("unrolled").reason


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3"])
def test_a_trip_count_is_checked(n: Any) -> None:
    with pytest.raises(UsageError, match="trip count") as caught:
        loops(step, "f32[8]", n)

    assert repr(n) in str(caught.value)
