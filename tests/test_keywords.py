"""Which keywords of a call are ours: the parts that the contract of all verbs (`test_verbs.py`) does not see."""

from __future__ import annotations

from typing import Any

import pytest

from benchax.errors import UsageError
from benchax.keywords import guard_keywords, takes


@guard_keywords(is_set_in_project=True)
def measure(fn: Any, *args: Any, max_time_s: Any = None, seed: Any = None, **kwargs: Any) -> dict[str, Any]:
    return kwargs


@guard_keywords()
def collect(paths: str = ".", *, pattern: str = "") -> str:
    return paths + pattern


def noisy(x: Any, seed: int = 0) -> Any:
    return x + seed


def anything(x: Any, **options: Any) -> Any:
    return x, options


def test_what_is_no_option_and_not_nearly_one_goes_to_the_function() -> None:
    assert measure(anything, 1, learning_rate=3) == {"learning_rate": 3}


def test_an_argument_of_the_function_may_be_called_nearly_as_an_option() -> None:
    assert measure(lambda x, max_time: x, 1, max_time=3) == {"max_time": 3}


def test_none_is_no_option_that_was_given() -> None:
    assert measure(noisy, 1, seed=None) == {}


def test_of_several_functions_each_is_asked() -> None:
    for several in ([anything, noisy], {"a": anything, "b": noisy}):
        with pytest.raises(UsageError, match="seed=3 is both an option of measure and an argument of the function"):
            measure(several, 1, seed=3)


def test_where_options_are_set_is_said_where_they_hold() -> None:
    with pytest.raises(UsageError) as error:
        measure(anything, 1, timer="wall")

    assert str(error.value) == (
        "timer='wall' is no option of measure\n"
        "expected one of: fn, max_time_s, seed\n\n"
        "hint: set timer in [tool.benchax]; for the function: functools.partial(f, timer=...)"
    )


def test_who_passes_nothing_on_takes_its_own_options_only() -> None:
    assert collect(paths="a", pattern="b") == "ab"
    with pytest.raises(UsageError, match=r"patern='b' is no option of collect\nexpected 'pattern'\? Permitted is one"):
        collect(patern="b")  # type: ignore[call-arg]


def test_a_builtin_takes_no_name_that_we_know_of() -> None:
    assert not takes(max, "key")
    assert takes(noisy, "seed")
    assert not takes(anything, "learning_rate")
