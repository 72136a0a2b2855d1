"""Numbers that differ on the host and are equal on the device: float64 dates that become float32, int64 that wraps.

JAX has 32 bits by default and does not warn. Only a large offset counts: float32 holds about 2,460,000 days to a
quarter of a day. Small numbers next to large ones, such as the tails of a filter, are rounded without harm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.recorder.log import Event, Log
from benchax.specs import short_dtype
from benchax.watching.frames import user_line

SAMPLED = 4096
"""Elements, one after another: neighbours are closest to each other, in a series of times."""
MOST_COLUMNS = 64
"""The maximum number of columns of a table whose columns have several kinds."""
LEAST_VALUES, LEAST_DISTINCT = 32, 8
NEAR = 0.1
"""A share of the largest number. If the numbers spread further, no offset is to blame."""
KEPT_SHARE = 0.9
"""The share of the different numbers that must stay different."""
NOISE_BITS = 40
"""Numbers that are equal to this many bits differ only by the rounding of the operations that made them."""
WIDE = ("float64", "int64")


@dataclass(frozen=True)
class LostDigits:
    """The original numbers, and their values on the device."""

    from_dtype: str
    to_dtype: str
    low: float
    high: float
    distinct: int
    left: int
    """Different numbers before, and after."""
    step: float
    """From one number of the new dtype to the next, at the largest of them."""

    @property
    def sentences(self) -> list[str]:
        """Returns sentences about the loss, for `seen`."""
        to = short_dtype(self.to_dtype)
        between = f"from {self.low:.12g} to {self.high:.12g}"
        if self.to_dtype.startswith("int"):
            return [f"the numbers go {between}; {to} ends at {np.iinfo(self.to_dtype).max}"]
        return [
            f"of {self.distinct} different numbers {between} {self.left} are left in {to}",
            f"{to} holds a number of this size to {self.step:.3g}",
        ]


def find_lost_digits(given: Any, to_dtype: Any) -> LostDigits | None:
    """None: all is well, or it is not an array of 64 bits that becomes one of fewer.

    Args:
        given: an array of NumPy, or a list of numbers.
        to_dtype: what it becomes on the device.
    """
    array, to = np.asarray(given), jnp.dtype(to_dtype)
    if str(array.dtype) not in WIDE or to.itemsize >= array.dtype.itemsize or array.size < LEAST_VALUES:
        return None
    is_table = array.ndim > 1 and array.shape[-1] <= MOST_COLUMNS
    columns = array.reshape(-1, array.shape[-1])[-SAMPLED:].T if is_table else array.reshape(1, -1)[:, -SAMPLED:]
    return next((lost for column in columns if (lost := _look(column, to))), None)


def _look(column: np.ndarray, to: np.dtype) -> LostDigits | None:
    column = column[np.isfinite(column)]
    if column.size < LEAST_VALUES:
        return None
    with np.errstate(over="ignore"):
        made = column.astype(to)
    low, high = float(column.min()), float(column.max())
    ends = str(column.dtype), str(to), low, high
    if jnp.issubdtype(to, jnp.integer):
        is_wrapped = column.dtype.kind == "i" and bool(np.any(made.astype(column.dtype) != column))
        return LostDigits(*ends, 0, 0, 1.0) if is_wrapped else None
    size = max(abs(low), abs(high))
    if not 0 < high - low < NEAR * size:
        return None
    distinct, left = len(np.unique(_without_noise(column))), len(np.unique(made))
    if distinct < LEAST_DISTINCT or left >= KEPT_SHARE * distinct:
        return None
    return LostDigits(*ends, distinct, left, float(jnp.finfo(to).eps) * 2.0 ** np.floor(np.log2(size)))


def _without_noise(column: np.ndarray) -> np.ndarray:
    parts, exponents = np.frexp(column.astype(np.float64))
    return np.ldexp(np.round(parts * 2.0**NOISE_BITS), exponents - NOISE_BITS)


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
    return isinstance(innermost(given), np.ndarray | np.generic | int | float)


def innermost(given: Any) -> Any:
    """The first number of a list, or of the first of its lists; anything else is what it is."""
    while isinstance(given, list | tuple) and given:
        given = given[0]
    return given
