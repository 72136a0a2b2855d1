"""Items by their keys."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchax.grouping import group_by


@given(st.lists(st.integers()))
def test_each_item_is_in_the_group_of_its_key_in_the_order_in_which_they_came(items: list[int]) -> None:
    found = group_by(items, lambda item: item % 3)

    assert list(found) == list(dict.fromkeys(item % 3 for item in items))
    assert found == {key: [item for item in items if item % 3 == key] for key in found}
