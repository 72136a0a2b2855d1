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


def test_functions_of_a_mapping_have_its_names() -> None:
    assert list(named_functions({"a": f, "b": f})) == ["a", "b"]


@pytest.mark.parametrize("given", [f, [], {}, "f", 3, [3], {1: f}, {"": f}, None])
def test_what_are_no_functions_is_refused(given: object) -> None:
    with pytest.raises(UsageError):
        named_functions(given)


def test_data_of_a_list_are_called_by_value_spec_or_shape() -> None:
    x = jnp.ones((2, 3))

    assert labels([4, 0.5, "f32[8]"]) == [4, 0.5, "f32[8]"]
    assert labels([x, x, (x, np.ones(2)), {"w": x}]) == [
        "f32[2,3]",
        "f32[2,3]#2",
        "(f32[2,3], f64[2])",
        "{w: f32[2,3]}",
    ]
    assert labels([f]) == ["f"]


def test_numpy_sizes_are_plain_labels() -> None:
    found = labels(np.array([4, 8]), make=lambda key, n: n)

    assert found == [4, 8]
    assert {type(label) for label in found} == {int}


def test_labels_that_read_alike_are_told_apart() -> None:
    assert labels([1, 1.0, True]) == [1, "1.0#2", "True#2"]


def test_an_array_given_for_the_data_is_refused_not_cut_in_rows() -> None:
    with pytest.raises(UsageError, match="array of shape"):
        points(jnp.ones((3, 4)), None)


@pytest.mark.parametrize("given", ["f32[8]", 3, [], {}, None])
def test_what_are_no_data_is_refused(given: object) -> None:
    with pytest.raises(UsageError):
        points(given, None)


def test_a_slip_in_a_spec_is_told_before_anything_runs() -> None:
    with pytest.raises(UsageError, match="f33"):
        points(["f33[8]"], None)


@pytest.mark.parametrize(
    "given",
    [
        {"trials": 0},
        {"trials": 2.5},
        {"trials": True},
        {"seed": -1},
        {"make": 3},
        {"axis": ""},
        {"axis": "i"},
        {"name": ""},
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(given: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(given))):
        plan([f], [1], **given)  # type: ignore[arg-type]


def test_cells_of_one_data_point_stand_together() -> None:
    found = plan({"a": f, "b": f}, [1, 2])

    assert [(name, point.label) for name, point in found.cells] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_a_cell_is_stored_under_function_label_and_grid() -> None:
    assert plan([f], [4], name="g", axis="n").case_id("f", 4) == CaseId("f", (("n", 4), ("grid", "g")))


def test_seeds_depend_on_seed_label_and_trial_and_on_nothing_else() -> None:
    seeds = {trial_seed(seed, label, trial) for seed in (0, 1) for label in (4, "4", 8) for trial in range(3)}

    assert len(seeds) == 18
    assert trial_seed(0, 4, 0) == trial_seed(0, 4, 0) < 2**31
