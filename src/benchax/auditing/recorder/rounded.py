"""Notes the lines at which numbers lose digits on their way to a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.lost_digits import find_lost_digits
from benchax.auditing.recorder.log import Event, Log
from benchax.watching.frames import user_line

LOOKED_AT = 3
"""Arrays of one line and shape."""


class LostDigitsNotes:
    """Adds "rounded" to a log for each line at which numbers were lost on their way to a device."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._times = Counter[tuple[str, str]]()
        self._told = set[str]()

    def note_put(self, given: Any, found: Any) -> None:
        """Takes what `jax.device_put`, `jnp.asarray` or `jnp.array` was given, and what it made."""
        made = jax.tree.leaves(found)
        leaves = jax.tree.leaves(given) if len(made) > 1 or isinstance(given, Mapping) else [given]
        if len(leaves) == len(made):
            self._note(user_line(), ((one, to.dtype) for one, to in zip(leaves, made, strict=True) if _is_numbers(one)))

    def note_call(self, leaves: Sequence[Any], where: str | None) -> None:
        """Takes the arguments of a call before it runs."""
        self._note(where, ((leaf, jnp.result_type(leaf)) for leaf in leaves if isinstance(leaf, np.ndarray)))

    def _note(self, where: str | None, arrays: Iterable[tuple[Any, Any]]) -> None:
        for given, dtype in arrays:
            kind = where or "", str(np.shape(given))
            self._times[kind] += 1
            is_new = where and where not in self._told and self._times[kind] <= LOOKED_AT
            if is_new and (lost := find_lost_digits(given, dtype)):
                self._told.add(kind[0])
                self._log.add(Event("rounded", "", kind[0], note=lost))


def _is_numbers(given: Any) -> bool:
    """Is it an array of NumPy, or a list of Python's numbers, whose first is looked at?"""
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return isinstance(given, np.ndarray | np.generic | int | float)
