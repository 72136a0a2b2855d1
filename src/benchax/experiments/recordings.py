"""Several recordings of one call by JAX's profiler, and the one among them that is told.

One recording may lack the last operations, or the end of one. Each run has the same operations, so those with most of
them are whole.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import jax

from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.profiling.sampler import name_of
from benchax.profiling.session import session

PROFILES, LEAST_PROFILES = 7, 3
"""Recordings of one call each, and how many of them have to be whole."""


class RecordingReading(Protocol):
    """What one recording says. Readings have an order, of which the middle is told."""

    @property
    def operations(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


R = TypeVar("R", bound=RecordingReading)


def record_readings(
    call: Callable[[], Any], devices: Sequence[Any], read: Callable[[bytes, Sequence[str]], R]
) -> tuple[list[R], str]:
    """(what `read` says of each recording, why it says nothing of the others). Waits for the results of `call`.

    Args:
        read: given a trace, and the names that `devices` have there.
    """
    names = [name_of(device) for device in devices]
    found, why = list[R](), ""
    for _ in range(PROFILES):
        try:
            with session() as recording:
                jax.block_until_ready(call())
            found.append(read(recording.xspace, names))
        except (NotMeasured, NotAvailable, UsageError, FormatError) as error:
            why = error.problem
    return found, why


def middle(found: Sequence[R], why: str) -> R:
    """Of those that are whole the middle one.

    Raises:
        NotMeasured: there are too few; `why` the others cannot be read.
    """
    most = max((each.operations for each in found), default=0)
    whole = sorted(each for each in found if each.operations == most)
    if len(whole) < LEAST_PROFILES:
        raise NotMeasured(why or "the recordings differ in the number of operations")
    return whole[len(whole) // 2]
