"""Processes with several devices, and what is read there of a function.

Where there are too few real devices and the backend is the CPU, a process pretends to have as many as are needed:
counts and bytes of its programs are those of the real thing, times are not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import jax

from benchax.experiments.base import Facts
from benchax.experiments.processes import Condition
from benchax.measuring.fresh_stack import on_fresh_stack
from benchax.results.experiment import Point
from benchax.stats.intervals import median_interval
from benchax.stats.summary import quantile

MOST_DEVICES = 64
LEAST_READINGS, MOST_READINGS, READING_S = 6, 50, 1.0
_FAKE = re.compile(r"--xla_force_host_platform_device_count=\S*")


@dataclass(frozen=True)
class DeviceReading:
    """What a worker saw of the function in one way over its devices."""

    facts: Facts = ()
    time: tuple[float | None, float | None, float | None] = (None, None, None)
    """As `time_calls` has it; nothing where the devices are fake."""
    why: str = ""
    """Why it could not be tried."""

    def point(self, x: int, label: str) -> Point:
        facts = (("not available:", self.why),) if self.why else self.facts
        return Point(x, label, *self.time, facts=facts)


def with_devices(count: int, flags: str = "") -> Condition:
    """A process that has so many devices, fake ones if the backend is the CPU; `flags` of XLA on top."""
    # The flag says the same as the setting in an older way, and JAX takes no two answers.
    usual = _FAKE.sub("", os.environ.get("XLA_FLAGS", ""))
    environ = {"XLA_FLAGS": f"{usual} {flags}".strip()}
    return Condition(f"{count} devices", {"jax_num_cpu_devices": count}, environ)


@on_fresh_stack
def time_calls(call: Callable[[], Any], enough_s: float = READING_S) -> tuple[float, float | None, float | None]:
    """(median, low, high) of a call and the wait for its result, in seconds, whoever asks (`measuring/fresh_stack.py`).

    Args:
        enough_s: no further reading after so many seconds in calls, but for the fewest that give an interval.
    """
    readings: list[float] = []
    while len(readings) < LEAST_READINGS or (len(readings) < MOST_READINGS and sum(readings) < enough_s):
        begun = perf_counter_ns()
        jax.block_until_ready(call())
        readings.append((perf_counter_ns() - begun) / 1e9)
    low, high = median_interval(readings) or (None, None)
    return quantile(sorted(readings), 0.5), low, high
