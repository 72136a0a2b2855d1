"""Which keywords of a call are ours: the parts that the contract of all verbs (`test_verbs.py`) does not see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from refusals import refusal

from benchax.keywords import check_kinds, guard_keywords, takes


@guard_keywords(is_set_in_project=True)
def measure(fn: Any, *args: Any, max_time_s: Any = None, seed: Any = None, **kwargs: Any) -> dict[str, Any]:
    return kwargs


def noisy(x: Any, seed: int = 0) -> Any:
    return x + seed


def anything(x: Any, **options: Any) -> Any:
    return x, options


def test_what_is_no_option_or_an_argument_of_the_function_goes_there() -> None:
    assert measure(anything, 1, learning_rate=3) == {"learning_rate": 3}
    assert measure(lambda x, max_time: x, 1, max_time=3) == {"max_time": 3}
    assert measure(noisy, 1, seed=None) == {}


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
        {"name": "x"}, {"name": None}, {"count": 3}, {"count": "500"}, {"count": np.int32(3)}, {"count": np.zeros(())},
        {"rules": ["a", "b"]}, {"rules": "a,b"}, {"given": {"a": 1}}, {"folder": "here"}, {"anything": object()},
        {"unknown": 3},
    ],
)  # fmt: skip
def test_what_an_annotation_allows_passes(options: dict[str, Any]) -> None:
    check_kinds(every_kind, options)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("name", 3, "3\nexpected a text or None"),
        ("count", [1], "[1]\nexpected a whole number"),
        ("count", np.zeros(2), "array([0., 0.])\nexpected a whole number"),
        ("count", ["x" * 10_000], f"['{'x' * 58}… (10,004 characters)\nexpected a whole number"),
        ("mode", 3, "3\nexpected 'a' or 'b'"),
        ("rules", 3, "3\nexpected a list of texts"),
        ("given", [1], "[1]\nexpected a dict or None"),
    ],
)
def test_what_it_excludes_is_quoted_with_what_is_expected(name: str, value: Any, text: str) -> None:
    assert refusal(check_kinds, every_kind, {name: value}) == f"option {name!r} in the call cannot be {text}"
