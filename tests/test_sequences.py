"""Items by their keys, and rounds of a loop in a sequence of calls as letters: what begins a round is found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.grouping import group_by
from benchax.repeating import once_a_round


def begins(letters: str, anchor: str) -> list[int]:
    sequence = np.array([ord(letter) for letter in letters])
    return once_a_round(sequence, np.flatnonzero(sequence == ord(anchor))).tolist()


@pytest.mark.parametrize(
    ("letters", "anchor", "expected"),
    [
        ("sssss", "s", [0, 1, 2, 3, 4]),
        ("sl" * 4, "s", [0, 2, 4, 6]),  # a step and its loss
        ("ggu" * 4, "g", [1, 4, 7, 10]),  # gradients that are accumulated: one of each round, the same in all
        ("abcasdkjs", "s", [4, 8]),  # nothing returns: each call
        ("ssssssssslsssssssssssl", "s", [i for i in range(22) if i not in (9, 21)]),  # a report now and then
    ],
)
def test_a_round_begins_once(letters: str, anchor: str, expected: list[int]) -> None:
    assert begins(letters, anchor) == expected


def test_what_comes_in_between_now_and_then_hides_no_round() -> None:
    """A step of three calls for one, with an evaluation behind each tenth."""
    text = ("dddg" * 10 + "e") * 4

    found = begins(text, "d")

    assert found == [i for i in range(len(text)) if text[i] == "d" and (i == 0 or text[i - 1] in "ge")]


def test_a_round_of_which_the_beginning_was_not_seen_is_none() -> None:
    assert begins("dg" + "dddg" * 10, "d")[0] == 2


# ---- items by their keys --------------------------------------------------------------------------------------------


@given(st.lists(st.integers()))
def test_each_item_is_in_the_group_of_its_key_in_the_order_in_which_they_came(items: list[int]) -> None:
    found = group_by(items, lambda item: item % 3)

    assert list(found) == list(dict.fromkeys(item % 3 for item in items))
    assert found == {key: [item for item in items if item % 3 == key] for key in found}
