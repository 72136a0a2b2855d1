"""What benchax raises: one form of message, one base class, and names that are listed with the nearest one first."""

from __future__ import annotations

import pickle

import pytest

from benchax import errors
from benchax.errors import BenchaxError, MissingPackage, one_of, require

KINDS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, BenchaxError)]
kinds = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BenchaxError("no such row"), "no such row"),
        (BenchaxError("no such row", "a number"), "no such row\nexpected a number"),
        (BenchaxError("no such row", hint="benchax list"), "no such row\n\nhint: benchax list"),
        (BenchaxError("no row", "a number", "benchax list"), "no row\nexpected a number\n\nhint: benchax list"),
    ],
)
def test_a_message_says_what_was_wrong_what_was_expected_and_what_to_do(error: BenchaxError, text: str) -> None:
    assert str(error) == text


@kinds
def test_an_error_survives_the_way_between_processes_and_is_caught_as_a_benchax_error(kind: type[BenchaxError]) -> None:
    error = kind("wrong: 'é\n'", "right", "do it")

    with pytest.raises(BenchaxError) as caught:
        raise pickle.loads(pickle.dumps(error))

    assert type(caught.value) is kind
    assert (caught.value.problem, caught.value.expected, caught.value.hint) == ("wrong: 'é\n'", "right", "do it")
    assert str(caught.value) == str(error)


@kinds
def test_every_error_is_in_the_tree_of_the_docstring(kind: type[BenchaxError]) -> None:
    assert f"{kind.__name__} " in (errors.__doc__ or "")


THIRTY = [f"a{i:02}" for i in range(30)]


@pytest.mark.parametrize(
    ("names", "given", "listed"),
    [
        (["wall", "loop"], None, "one of: loop, wall"),
        (["seed", "timer", "store"], "tmer", "'timer'? Choices: seed, store, timer"),
        (["seed", "timer"], "xyzzy", "one of: seed, timer"),
        (THIRTY, "nothing alike", f"one of: {', '.join(THIRTY)}"),
        (["sort", *THIRTY], "srot", "'sort'? Choices: 31 names, such as sort"),
        (["sort", *THIRTY], "nothing alike", "one of 31 names, such as a00, a01, a02, a03, a04"),
    ],
)
def test_names_are_listed_the_nearest_first_and_of_many_only_a_few(
    names: list[str], given: str | None, listed: str
) -> None:
    assert one_of(names, given) == listed


def test_a_package_that_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(MissingPackage) as caught:
        require("no_such_package.part", doing="a table of rows")

    assert str(caught.value) == (
        "a table of rows needs the package 'no_such_package', which is not installed\n\n"
        "hint: pip install no_such_package"
    )
    assert isinstance(caught.value.__cause__, ImportError)
