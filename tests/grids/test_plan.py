"""What becomes a grid, under which names and labels, and which seeds its trials have."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from benchax.errors import UsageError
from benchax.grids.plan import named_functions, plan, points, trial_seed
from benchax.model import CaseId


def f(x: object) -> object:
    return x


def labels(data: object, make: object = None) -> list[object]:
    return [point.label for point in points(data, make)]  # type: ignore[arg-type]


def test_functions_of_a_list_have_their_own_names_and_twins_are_told_apart() -> None:
    other = functools.partial(f)

    assert list(named_functions([f, other, lambda x: x, lambda x: x])) == ["f", "f#2", "<lambda>", "<lambda>#2"]
    assert list(named_functions({"a": f, "b": f})) == ["a", "b"]


@pytest.mark.parametrize("given", [f, [], {}, "f", 3, [3], {1: f}, {"": f}, None])
def test_what_are_no_functions_is_refused(given: object) -> None:
    with pytest.raises(UsageError):
        named_functions(given)


@pytest.mark.parametrize("given", ["f32[8]", 3, [], {}, None, jnp.ones((3, 4)), ["f33[8]"]])
def test_what_are_no_data_is_refused(given: object) -> None:
    """An array is not cut in rows, and a slip in a spec is told before anything runs."""
    with pytest.raises(UsageError, match="f33" if isinstance(given, list) and given else "data"):
        points(given, None)


def test_data_of_a_list_are_called_by_value_spec_or_shape_and_twins_are_told_apart() -> None:
    x = jnp.ones((2, 3))

    assert labels([4, 0.5, "f32[8]", f]) == [4, 0.5, "f32[8]", "f"]
    assert labels([x, x, (x, np.ones(2))]) == ["f32[2,3]", "f32[2,3]#2", "(f32[2,3], f64[2])"]
    assert labels([{"w": x}, 1, 1.0, True]) == ["{w: f32[2,3]}", 1, "1.0#2", "True#2"]
    sizes = labels(np.array([4, 8]), make=lambda key, n: n)
    assert (sizes, {type(label) for label in sizes}) == ([4, 8], {int})


BAD = (("trials", 0), ("trials", 2.5), ("trials", True), ("seed", -1), ("make", 3), ("axis", ""), ("axis", "i"))


@pytest.mark.parametrize(("name", "value"), [*BAD, ("name", "")])
def test_settings_that_cannot_work_are_refused_by_name(name: str, value: object) -> None:
    with pytest.raises(UsageError, match=name):
        plan([f], [1], **{name: value})  # type: ignore[arg-type]


def test_a_cell_is_stored_under_function_label_and_grid_beside_those_of_its_data_point() -> None:
    found = plan({"a": f, "b": f}, [1, 2], name="g", axis="n")

    assert [(name, point.label) for name, point in found.cells] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert found.case_id("a", 4) == CaseId("a", (("n", 4), ("grid", "g")))


def test_seeds_depend_on_seed_label_and_trial_and_on_nothing_else() -> None:
    seeds = {trial_seed(seed, label, trial) for seed in (0, 1) for label in (4, "4", 8) for trial in range(3)}

    assert len(seeds) == 18
    assert trial_seed(0, 4, 0) == trial_seed(0, 4, 0) < 2**31
