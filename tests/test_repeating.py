"""Rounds of a loop in a sequence of calls, written as letters; what begins a round is found in each."""

from __future__ import annotations

import numpy as np
import pytest

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
