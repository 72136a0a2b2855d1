"""What rules do alike, apart from any of them."""

from __future__ import annotations

import pytest

from benchax.auditing.rule import list_some


@pytest.mark.parametrize(
    ("most", "what", "expected"),
    [
        (3, "", ["a", "b", "c"]),
        (2, "", ["a", "b", "and 1 more"]),
        (1, "loops", ["a", "and 2 more loops"]),
    ],
)
def test_of_many_lines_the_first_are_listed_and_the_others_counted(most: int, what: str, expected: list[str]) -> None:
    assert list_some(["a", "b", "c"], most, what) == expected
