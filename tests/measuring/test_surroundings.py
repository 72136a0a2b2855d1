"""What a function can reach beside its arguments, before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from benchax.measuring.mutation import changes, state_of


def changed(by: Callable[[Any], Any], held: Any) -> dict[str, str]:
    def fn() -> Any:
        return held

    before = state_of(fn)
    by(held)
    return changes(before, state_of(fn))


class Holder:
    def __init__(self) -> None:
        self.inner = {"a": [1, 2]}


@pytest.mark.parametrize(
    ("held", "by", "words"),
    [
        ([1], lambda v: v.append(2), "went from 1 to 2 members"),
        ({"a": 1}, lambda v: v.update(a=2), "has other contents"),
        ({1, 2}, lambda v: v.clear(), "went from 2 to 0 members"),
        ([[1]], lambda v: v[0].append(2), "has other contents"),
        (np.zeros(3), lambda v: v.fill(1), "has other contents"),
        (Holder(), lambda v: v.inner["a"].append(3), "has other contents"),
    ],
)
def test_a_change_in_place_is_told(held: Any, by: Callable[[Any], Any], words: str) -> None:
    assert changed(by, held) == {"held": words}


@pytest.mark.parametrize("held", [[1, {"a": np.ones(3)}], Holder(), 3, float("nan"), None, {"é": "\n" * 10_000}])
def test_what_stays_as_it_is_is_no_change(held: Any) -> None:
    assert changed(lambda v: None, held) == {}


def test_a_list_that_holds_itself_ends() -> None:
    held: list[Any] = []
    held.append(held)

    assert changed(lambda v: None, held) == {}


def test_a_variable_that_is_not_set_yet_is_told_when_it_is() -> None:
    def fn() -> Any:
        return late

    before = state_of(fn)
    late = 1

    assert changes(before, state_of(fn)) == {"late": "was set"}
