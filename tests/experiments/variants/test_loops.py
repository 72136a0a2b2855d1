"""A function as one iteration of a loop. Looks are real, times by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from labs_by_hand import ScriptedLab, outputs

from benchax.case import Case, make_case
from benchax.discovery import target_cases
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import loops
from benchax.experiments.lab import WorkerLab
from benchax.experiments.variants import VARIANTS
from benchax.experiments.variants.changes import MOST_UNROLLED, WrittenLoop, measure_loop
from benchax.results.experiment import Experiment, VariantRow

WAYS = ["loop:inner-jit", "loop:lax-loop", "loop:unrolled", "loop:scan"]
FILE = """
ITERATIONS = 2

def grow(i, s):
    return s * 2 + i

def unfinished(s):
    return s < 100
"""


def step(i: Any, state: Any) -> Any:
    return jnp.sin(state) + i


def measured(case: Case, given: Any, lab: ScriptedLab | None = None) -> dict[str, VariantRow]:
    found = VARIANTS["loop"].plan(case, given)(lab or ScriptedLab())
    return {row.name: row for row in found if isinstance(row, VariantRow)}


@pytest.mark.parametrize("told", ["3", 3])
def test_each_way_is_a_row_beside_the_python_loop(told: Any) -> None:
    lab = ScriptedLab({"loop:scan": 0.5})

    rows = measured(make_case(step, (7, "f32[8]"), static=(0,)), told, lab)

    assert list(rows) == ["loop:python", *WAYS]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["loop:python"].reason == "the others are compared with it"
    assert "3 iterations, i from 0 on" in rows["loop:python"].sentence
    assert rows["loop:scan"].comparison is not None
    assert rows["loop:scan"].comparison.verdict == "faster"


def test_the_state_that_goes_round_is_that_of_the_call_and_a_jitted_step_is_taken_out_of_its_jit() -> None:
    lab = ScriptedLab()
    state = np.linspace(0, 1, 4, dtype=np.float32)

    measured(make_case(jax.jit(step), (0, state)), 2, lab)

    assert lab.pairs["loop:scan"].one.fn.step is step
    expected = np.sin(np.sin(state)) + 1
    for result in lab.outputs("loop:lax-loop"):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("told", ["code.py:unfinished", lambda s: s < 100])
def test_a_condition_is_a_function_or_the_name_of_one(told: Any, project: Path) -> None:
    (project / "code.py").write_text(FILE)
    (case,) = target_cases("code.py:grow", ["0", "1.0"])
    lab = ScriptedLab()

    rows = measured(case, told, lab)

    assert {name: row.status for name, row in rows.items()} == {
        "loop:python": "ok", "loop:inner-jit": "ok", "loop:lax-loop": "ok", "loop:unrolled": "not_available",
        "loop:scan": "not_available",
    }  # fmt: skip
    assert "not known while tracing" in rows["loop:scan"].reason
    assert "while " in rows["loop:python"].sentence
    assert outputs(lab.pairs["loop:lax-loop"].other) >= 100


def test_a_step_that_fails_is_a_row() -> None:
    rows = measured(make_case(lambda i, s: s.nothing, (0, "f32[8]")), 2)

    assert [row.status for row in rows.values()] == ["failed"]
    assert "nothing" in rows["loop:python"].reason


def test_untold_it_says_what_it_has_to_be_told() -> None:
    with pytest.raises(NotMeasured, match=r"loop=50, or a condition of the state, loop=model\.py:unfinished"):
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")))


@pytest.mark.parametrize("told", ["0", "-1", "1.5", "True", "f", "", 0, True, 2.0, [1]])
def test_what_is_no_trip_count_is_quoted(told: Any) -> None:
    with pytest.raises(UsageError, match="trip count from 1 up, or a condition") as caught:
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")), told)

    assert f"loop={told!r}" in caught.value.problem


def test_a_name_of_something_else_is_refused(project: Path) -> None:
    (project / "code.py").write_text("ITERATIONS = [1]\n")

    with pytest.raises(UsageError, match=r"loop='code\.py:ITERATIONS' names an object of the type list"):
        VARIANTS["loop"].plan(make_case(step, (0, "f32[8]")), "code.py:ITERATIONS")


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [
        (("f32[8]",), {}),
        (("f32[8]", 0), {}),
        ((0,), {"state": "f32[8]"}),
        ((0, "f32[8]", 1), {}),
        ((True, "f32[8]"), {}),
    ],
)
def test_other_inputs_than_those_of_a_step_are_refused(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    case = make_case(lambda *args, **kwargs: args, args, kwargs, name="mine")

    with pytest.raises(UsageError, match=r"as of step\(i, state\)") as caught:
        VARIANTS["loop"].plan(case, 5)

    assert "mine(" in caught.value.problem


# ---- A loop in five ways; looked at in a real worker, run times by hand ----


def sine_step(i: Any, state: Any) -> Any:
    return jnp.sin(state) + i


def found(sine_step: Any, init: Any, n: int | Callable[[Any], Any], lab: WorkerLab) -> Experiment:
    case = make_case(WrittenLoop(sine_step, n), (init,), name="step", jit=False)
    return measure_loop(case, sine_step, n, lab)


def test_five_ways_give_the_same_state() -> None:
    lab = ScriptedLab({"lax-loop": 0.1})
    e = found(sine_step, "f32[8]", 5, lab)

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


def test_a_body_that_cannot_be_traced_fails_in_its_rows_and_the_loop_itself_stays() -> None:
    e = found(lambda i, s: s + 1 if s.sum() > 0 else s - 1, "f32[8]", 3, ScriptedLab())

    assert e.baseline.status == "ok"
    assert {row.status for row in e.rows} == {"failed"}
    assert "TracerBoolConversionError" in e.row("scan").reason


def test_long_loops_are_not_unrolled() -> None:
    e = found(sine_step, "f32[2]", MOST_UNROLLED + 1, ScriptedLab())

    assert e.row("unrolled").status == "not_available"
    assert str(MOST_UNROLLED + 1) in e.row("unrolled").reason


@pytest.mark.parametrize("n", [0, -1, True, 1.5, "3"])
def test_a_trip_count_is_checked(n: Any) -> None:
    with pytest.raises(UsageError, match="trip count") as caught:
        loops(sine_step, "f32[8]", n)

    assert repr(n) in str(caught.value)
