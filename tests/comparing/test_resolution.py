"""How small a change is to be seen: what may be written, and what is said where it is too coarse."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons_by_hand import compared

from benchax.comparing.judging import blind_spot, resolution_of
from benchax.errors import UsageError
from benchax.stats.verdicts import LEAST_CHANGE, SAME_WITHIN, least_change


@pytest.mark.parametrize(
    ("given", "share"),
    [(None, 0.05), ("1%", 0.01), ("0.5 %", 0.005), (0.02, 0.02), ("0.02", 0.02), ("20%", 0.2), (" 2.5% ", 0.025)],
)
def test_a_resolution_is_a_share(given: float | str | None, share: float) -> None:
    assert resolution_of(given) == pytest.approx(share)


@pytest.mark.parametrize("given", ["1", "0.4%", "21%", "fine", "", "-1%", 0, 1.0, "1%%", "nan"])
def test_what_is_no_resolution_is_quoted_with_what_is_one(given: float | str) -> None:
    with pytest.raises(UsageError) as error:
        resolution_of(given)

    assert error.value.problem == f"invalid resolution {given!r}"
    assert error.value.expected == "a share between 0.5 % and 20 %: 1%, or 0.01"


def test_the_least_change_with_a_name_is_in_proportion() -> None:
    assert least_change(SAME_WITHIN) == LEAST_CHANGE
    assert least_change(0.01) == pytest.approx(0.004)


def test_what_the_usual_resolution_does_not_see_is_said_where_something_is_called_the_same() -> None:
    same, slower = compared(0, 1.001), compared(0, 1.2)
    said = "a slowdown of up to 2 % counts as same (within 5 %); --resolution 1% finds it"

    assert blind_spot([same, slower]) == said
    assert blind_spot([slower]) == ""
    assert blind_spot([replace(same, resolution=0.01)]) == ""
    assert blind_spot([replace(same, ratio=None, method="same program")]) == ""
