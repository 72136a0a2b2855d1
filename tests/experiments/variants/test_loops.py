"""A function as one iteration of a loop. Looks are real, times by hand."""

from __future__ import annotations

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
from benchax.experiments.variants.loops import LoopForms
from benchax.results.experiment import VariantRow

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
    found = LoopForms().plan(case, given)(lab or ScriptedLab())
    return {row.name: row for row in found if isinstance(row, VariantRow)}


@pytest.mark.parametrize("told", ["3", 3])
def test_each_way_is_a_row_beside_the_python_loop(told: Any) -> None:
    lab = ScriptedLab({"scan": 0.5})

    rows = measured(make_case(step, (7, "f32[8]"), static=(0,)), told, lab)

    assert list(rows) == ["loop:python", *WAYS]
    assert {row.status for row in rows.values()} == {"ok"}
    assert rows["loop:python"].reason == "the others are compared with it"
    assert "3 iterations, i from 0 on" in rows["loop:python"].sentence
    assert rows["loop:scan"].comparison is not None
    assert rows["loop:scan"].comparison.verdict == "faster"


def test_the_state_that_goes_round_is_that_of_the_call() -> None:
    lab = ScriptedLab()
    state = np.linspace(0, 1, 4, dtype=np.float32)

    measured(make_case(step, (0, state)), 2, lab)

    expected = np.sin(np.sin(state)) + 1
    for result in lab.outputs("lax-loop"):
        np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_a_jitted_step_is_taken_out_of_its_jit() -> None:
    lab = ScriptedLab()

    measured(make_case(jax.jit(step), (0, "f32[8]")), 2, lab)

    assert lab.pairs["scan"].one.fn.step is step


@pytest.mark.parametrize("told", ["code.py:unfinished", lambda s: s < 100])
def test_a_condition_is_a_function_or_the_name_of_one(told: Any, project: Path) -> None:
    (project / "code.py").write_text(FILE)
    (case,) = target_cases("code.py:grow", ["0", "1.0"])
    lab = ScriptedLab()

    rows = measured(case, told, lab)

    assert rows["loop:scan"].status == "not_available"
    assert rows["loop:lax-loop"].status == "ok"
    assert "while " in rows["loop:python"].sentence
    assert outputs(lab.pairs["lax-loop"].other) >= 100


def test_a_step_that_fails_is_a_row() -> None:
    rows = measured(make_case(lambda i, s: s.nothing, (0, "f32[8]")), 2)

    assert [row.status for row in rows.values()] == ["failed"]
    assert "nothing" in rows["loop:python"].reason


def test_untold_it_says_what_it_has_to_be_told() -> None:
    with pytest.raises(NotMeasured, match=r"loop=50, or a condition of the state, loop=model\.py:unfinished"):
        LoopForms().plan(make_case(step, (0, "f32[8]")))


@pytest.mark.parametrize("told", ["0", "-1", "1.5", "True", "f", "", 0, True, 2.0, [1]])
def test_what_is_no_trip_count_is_quoted(told: Any) -> None:
    with pytest.raises(UsageError, match="trip count from 1 up, or a condition") as caught:
        LoopForms().plan(make_case(step, (0, "f32[8]")), told)

    assert f"loop={told!r}" in caught.value.problem


def test_a_name_of_something_else_is_refused(project: Path) -> None:
    (project / "code.py").write_text("ITERATIONS = [1]\n")

    with pytest.raises(UsageError, match=r"loop='code\.py:ITERATIONS' names an object of the type list"):
        LoopForms().plan(make_case(step, (0, "f32[8]")), "code.py:ITERATIONS")


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
        LoopForms().plan(case, 5)

    assert "mine(" in caught.value.problem
