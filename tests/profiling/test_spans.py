"""Rows of equal values have one number, by two ways that must agree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.profiling import spans
from benchax.profiling.spans import group_rows, number_rows

ROWS = st.lists(st.tuples(st.integers(-3, 3), st.sampled_from([-(2**62), -1, 0, 7, 2**62]), st.integers(0, 2)))


@given(ROWS)
def test_groups_are_those_of_numpy_in_its_order(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)

    first, group = group_rows(*columns.T)

    _, expected_first, expected = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    assert first.tolist() == expected_first.tolist()
    assert group.tolist() == expected.reshape(-1).tolist()


def test_a_few_values_are_counted_and_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spans.np, "unique", None)

    assert number_rows(np.array([5, 3, 5]), np.array([-1, -1, 0])).tolist() == [1, 0, 2]
