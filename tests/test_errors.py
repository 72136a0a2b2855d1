"""What benchax raises: one form of message, one base class, and names that are listed with the nearest one first."""

from __future__ import annotations

import pickle

import pytest

from benchax import errors
from benchax.errors import BenchaxError, MissingPackage, UsageError, one_of, require

KINDS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BenchaxError)]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


def test_a_message_says_what_was_wrong_what_was_expected_and_what_to_do() -> None:
    error = BenchaxError("unknown timer 'cupti'", "one of: loop, wall", "on CPU choose 'loop'")

    text = str(error)

    assert text == "unknown timer 'cupti'\nexpected one of: loop, wall\n\nhint: on CPU choose 'loop'"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BenchaxError("no such row"), "no such row"),
        (BenchaxError("no such row", "a number"), "no such row\nexpected a number"),
        (BenchaxError("no such row", hint="benchax list"), "no such row\n\nhint: benchax list"),
    ],
)
def test_what_is_not_given_leaves_no_trace(error: BenchaxError, text: str) -> None:
    assert str(error) == text


@kinds
def test_every_error_is_caught_as_a_benchax_error(kind: type[BenchaxError]) -> None:
    with pytest.raises(BenchaxError, match="wrong") as caught:
        raise kind("wrong", "right", "do it")

    assert type(caught.value) is kind


@kinds
def test_an_error_survives_the_way_between_processes(kind: type[BenchaxError]) -> None:
    error = kind("wrong: 'é\n'", "right", "do it")

    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is kind
    assert (arrived.problem, arrived.expected, arrived.hint) == ("wrong: 'é\n'", "right", "do it")
    assert str(arrived) == str(error)


@kinds
def test_every_error_is_in_the_tree_of_the_docstring(kind: type[BenchaxError]) -> None:
    assert f"{kind.__name__} " in (errors.__doc__ or "")


def test_names_are_listed_in_order() -> None:
    assert one_of(["wall", "loop"]) == "one of: loop, wall"


def test_the_nearest_name_comes_first() -> None:
    assert one_of(["seed", "timer", "store"], "tmer") == "'timer'? Permitted is one of: seed, store, timer"


def test_a_name_that_is_near_to_none_is_not_guessed() -> None:
    assert one_of(["seed", "timer"], "xyzzy") == "one of: seed, timer"


def test_thirty_names_are_all_listed() -> None:
    names = [f"a{i:02}" for i in range(30)]

    listed = one_of(names, "nothing alike")

    assert listed == f"one of: {', '.join(names)}"


def test_of_more_names_only_the_nearest_are_listed() -> None:
    names = ["sort", *(f"a{i:02}" for i in range(30))]

    listed = one_of(names, "srot")

    assert listed == "'sort'? Permitted is one of 31 names, such as sort"


def test_of_more_names_without_a_near_one_the_first_stand_for_all() -> None:
    names = [f"a{i:02}" for i in range(31)]

    listed = one_of(names, "nothing alike")

    assert listed == "one of 31 names, such as a00, a01, a02, a03, a04"


def test_a_package_that_is_there_is_imported() -> None:
    import json

    assert require("json", doing="reading") is json


def test_a_package_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(MissingPackage) as caught:
        require("no_such_package.part", doing="a table of rows")

    assert str(caught.value) == (
        "a table of rows needs the package 'no_such_package', which is not installed\n\n"
        "hint: pip install no_such_package"
    )
    assert isinstance(caught.value.__cause__, ImportError)


def test_a_users_mistake_is_not_a_missing_reading() -> None:
    assert not issubclass(errors.NotMeasured, UsageError)
