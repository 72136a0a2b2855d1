"""Settings: constants of a program, which the environment may override."""

from __future__ import annotations

import json
import pickle
from typing import Any

import cloudpickle
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.errors import UsageError
from benchax.settings import Settings, read


class Everything(Settings, prefix="TEST_"):
    n_x: list[int] = [4, 8]  # noqa: RUF012 - what this class permits
    weight: float = -1.0
    n_trials: int = 10
    is_quick: bool = False
    name: str = "grid"
    limit: float | None = None
    pair: tuple[int, str] = (1, "a")
    names: tuple[str, ...] = ()


def test_defaults_hold_without_variables() -> None:
    settings = Everything()

    assert (settings.n_x, settings.weight, settings.limit, settings.names) == ([4, 8], -1.0, None, ())


@pytest.mark.parametrize(
    ("variable", "text", "field", "value"),
    [
        ("TEST_N_X", "32, 64", "n_x", [32, 64]),
        ("TEST_N_X", "[32, 64]", "n_x", [32, 64]),
        ("TEST_N_X", "", "n_x", []),
        ("TEST_WEIGHT", "0.5", "weight", 0.5),
        ("TEST_N_TRIALS", " 3 ", "n_trials", 3),
        ("TEST_IS_QUICK", "Yes", "is_quick", True),
        ("TEST_IS_QUICK", "0", "is_quick", False),
        ("TEST_NAME", "a,b", "name", "a,b"),
        ("TEST_LIMIT", "2.5", "limit", 2.5),
        ("TEST_LIMIT", "none", "limit", None),
        ("TEST_PAIR", "3,b", "pair", (3, "b")),
        ("TEST_NAMES", '["a,b", "c"]', "names", ("a,b", "c")),
    ],
)
def test_a_variable_overrides_the_default(
    variable: str, text: str, field: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    settings = Everything()

    assert getattr(settings, field) == value
    assert type(getattr(settings, field)) is type(value)


def test_the_call_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_N_TRIALS", "3")

    assert Everything(n_trials=5).n_trials == 5


def test_a_subclass_reads_under_its_own_prefix_and_keeps_the_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    class More(Everything, prefix="MORE_"):
        size: int = 1

    monkeypatch.setenv("TEST_N_TRIALS", "3")
    monkeypatch.setenv("MORE_WEIGHT", "7")

    assert (More().n_trials, More().weight, More(size=2).size) == (10, 7.0, 2)


@pytest.mark.parametrize(
    ("variable", "text", "expected"),
    [
        ("TEST_N_X", "4,x", "values separated by commas, each a whole number"),
        ("TEST_N_X", "[4", "values separated by commas"),
        ("TEST_WEIGHT", "heavy", "a number"),
        ("TEST_WEIGHT", "nan", "a number"),
        ("TEST_N_TRIALS", "2.5", "a whole number"),
        ("TEST_IS_QUICK", "maybe", "one of: true, yes"),
        ("TEST_LIMIT", "soon", "a number, or the word none"),
        ("TEST_PAIR", "3", "2 values separated by commas"),
    ],
)
def test_a_value_that_cannot_be_read_names_its_variable(
    variable: str, text: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)

    with pytest.raises(UsageError) as error:
        Everything()

    assert variable in error.value.problem
    assert repr(text) in error.value.problem
    assert expected in error.value.expected


def test_settings_are_frozen_and_no_two_share_a_list() -> None:
    first, second = Everything(), Everything()

    with pytest.raises(AttributeError):
        first.n_trials = 3  # type: ignore[misc]
    first.n_x.append(1)

    assert second.n_x == [4, 8]


def test_a_type_without_a_rule_is_an_error_of_the_class() -> None:
    with pytest.raises(TypeError, match="no rule for fields of type"):
        read("1", dict[str, int], "X")


def test_settings_travel_to_a_worker() -> None:
    class Local(Settings):
        n: int = 1

    assert pickle.loads(cloudpickle.dumps(Local(n=2))).n == 2


@given(st.lists(st.integers()))
def test_whole_numbers_survive_commas_and_json(values: list[int]) -> None:
    assert read(",".join(map(str, values)), list[int], "X") == values
    assert read(json.dumps(values), list[int], "X") == values


@given(st.lists(st.text()))
def test_texts_survive_json(values: list[str]) -> None:
    assert read(json.dumps(values), tuple[str, ...], "X") == tuple(values)


@given(st.floats(allow_nan=False))
def test_numbers_survive(value: float) -> None:
    assert read(repr(value), float, "X") == value


HINTS = {int: int, float: float, bool: bool, list[int]: list, tuple[float, ...]: tuple, int | None: int | None}


@given(st.text() | st.text("0123456789,[]. enotrue"), st.sampled_from(list(HINTS)))
def test_any_other_text_is_a_usage_error_that_quotes_it_or_a_value(text: str, hint: Any) -> None:
    try:
        answer = read(text, hint, "X")
    except UsageError as error:
        answer = error

    assert repr(text) in answer.problem if isinstance(answer, UsageError) else isinstance(answer, HINTS[hint])
