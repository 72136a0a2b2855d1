"""The limits of a marker: `max_time_ms`, and `min_time_ms` for what is faster than it can be.

A test fails when the median is beyond its limit for sure: when the whole 95 % interval is, or with fewer than 6 rounds
all readings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchax import units
from benchax.errors import BenchaxError
from benchax.model import Measurement


class TimeLimitExceeded(BenchaxError, AssertionError):
    """A run time is beyond a limit of the test's marker."""


def check(timed: Mapping[str, Measurement], marker: Mapping[str, Any]) -> None:
    """Raises `TimeLimitExceeded`, after the row was kept."""
    __tracebackhide__ = True
    most_ms, least_ms = marker.get("max_time_ms"), marker.get("min_time_ms")
    for kind, m in timed.items():
        samples = m.headline
        if samples is None:
            continue
        low_s, high_s = samples.summary.low_s, samples.summary.high_s
        low_s = min(samples.per_call_s) if low_s is None else low_s
        high_s = max(samples.per_call_s) if high_s is None else high_s
        took = f"a {kind} run took {units.seconds_range(low_s, high_s)}"
        if most_ms is not None and low_s > most_ms / 1e3:
            raise TimeLimitExceeded(f"{took}, more than max_time_ms={most_ms}")
        if least_ms is not None and high_s < least_ms / 1e3:
            raise TimeLimitExceeded(f"{took}, less than min_time_ms={least_ms}: does it still do its work?")
