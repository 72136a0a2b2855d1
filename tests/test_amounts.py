"""What one call gets done, as its author says."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchax.amounts import check_work
from benchax.errors import UsageError


def test_amounts_become_floats_and_functions_stay_what_they_are() -> None:
    assert check_work({"samples": 32, "tokens 日本\n": 0.5}) == {"samples": 32.0, "tokens 日本\n": 0.5}
    assert check_work(len) is len
    assert check_work(None) is None


@pytest.mark.parametrize("work", [{}, 3, [("samples", 32)], "samples"])
def test_what_is_no_amounts_by_name_is_refused(work: Any) -> None:
    with pytest.raises(UsageError, match="amounts of one call by name") as error:
        check_work(work)

    assert repr(work) in str(error.value)


@pytest.mark.parametrize("amount", [0, -1, math.inf, math.nan, True, "32", None])
def test_an_amount_is_a_finite_number_above_0(amount: Any) -> None:
    with pytest.raises(UsageError, match="each above 0") as error:
        check_work({"samples": amount})

    assert f"holds 'samples': {amount!r}" in str(error.value)
