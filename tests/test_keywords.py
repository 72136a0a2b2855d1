"""Which keywords of a call are ours: the parts that the contract of all verbs (`test_verbs.py`) does not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from benchax.errors import UsageError
from benchax.keywords import check_kinds, guard_keywords, takes


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


# ---- kinds -----------------------------------------------------------------------------------------------------------


def every_kind(
    name: str | None = None,
    count: int = 1,
    mode: Literal["a", "b"] = "a",
    rules: Iterable[str] = (),
    given: Mapping[str, Any] | None = None,
    fn: Callable[..., Any] | None = None,
    folder: Path | None = None,
    anything: Any = None,
) -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"name": "x"},
        {"name": None},
        {"count": 3},
        {"count": "500"},
        {"count": np.int32(3)},
        {"count": np.zeros(())},
        {"rules": ["a", "b"]},
        {"rules": "a,b"},
        {"given": {"a": 1}},
        {"folder": "here"},
        {"anything": object()},
        {"unknown": 3},
    ],
)
def test_what_an_annotation_allows_passes(options: dict[str, Any]) -> None:
    check_kinds(every_kind, options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"name": 3}, "option 'name' in the call cannot be 3\nexpected a text or None"),
        ({"count": [1]}, "option 'count' in the call cannot be [1]\nexpected a whole number"),
        ({"count": np.zeros(2)}, "option 'count' in the call cannot be array([0., 0.])\nexpected a whole number"),
        ({"mode": 3}, "option 'mode' in the call cannot be 3\nexpected 'a' or 'b'"),
        ({"rules": 3}, "option 'rules' in the call cannot be 3\nexpected a list of texts"),
        ({"given": [1]}, "option 'given' in the call cannot be [1]\nexpected a dict or None"),
    ],
)
def test_what_it_excludes_is_quoted_with_what_is_expected(options: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError) as error:
        check_kinds(every_kind, options)

    assert str(error.value).strip() == text


def test_a_long_value_is_cut() -> None:
    with pytest.raises(UsageError, match=r"characters\)\nexpected a whole number"):
        check_kinds(every_kind, {"count": ["x" * 10_000]})
