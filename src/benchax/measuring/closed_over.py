"""Mutable objects that a function reaches beside its arguments: a model that it closes over, a reference in a global.

Calls that change them do not start from the same state, and nothing that is built around the function gives the change
as an output. They are put back as they were and refused by name. Objects that are only read stay what they are.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchax.errors import UsageError
from benchax.measuring import state
from benchax.measuring.state import Parts
from benchax.measuring.surroundings import values_of


class ClosedOver:
    """What `fn` reaches, as it is when this is made."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        reached = values_of(fn)
        if state.holds_objects(fn):
            reached["self"] = fn
        self._tree = (), {name: value for name, value in reached.items() if _is_stateful(value)}
        self._before = self._now()

    def check(self, name: str) -> None:
        """Raises `UsageError` where a call has changed something, after putting it back.

        Args:
            name: of the function.
        """
        if not self._tree[1]:
            return
        before, now = self._before.values, self._now().values
        changed = [each for each in now if each not in before or not _is_same(now[each], before[each])]
        if not changed:
            return
        state.put_back(self._tree, self._before)
        raise UsageError(
            f"{name} changes {changed[0]!r} in place, which it is not given as an argument: no two calls start from "
            "the same values",
            "a function that is given what it changes",
            f"pass {changed[0].partition('.')[0]!r} as an argument; what a call changes in its arguments is put back "
            "for each call, and timed",
        )

    def _now(self) -> Parts:
        return state.take_apart(self._tree)


def _is_stateful(value: Any) -> bool:
    try:
        return state.is_stateful(value)
    except (TypeError, ValueError):  # a container that is no tree, such as a dict of unlike keys
        return False


def _is_same(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(state.data_of(one), state.data_of(other))
