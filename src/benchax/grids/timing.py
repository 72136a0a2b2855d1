"""How one trial of a cell is read. A new way of reading is one function here and one line in TIMERS.

`wall` is the latency that a caller sees: one call and the wait for all its outputs, again and again until about 1 ms
is spent or 50 calls are made, once at least. Nothing but the call and the wait is inside a reading; fresh buffers for
a function that donates its inputs are made before it.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import jax

from benchax.errors import UsageError, one_of
from benchax.measuring.timers.base import Subject

SPAN_NS = 1_000_000
MOST_CALLS = 50

Trial = Callable[[Subject], list[int]]
"""Nanoseconds of each call of one trial, in the order taken."""


def wall(subject: Subject) -> list[int]:
    wait = jax.block_until_ready
    readings: list[int] = []
    spent = 0
    while not readings or (spent < SPAN_NS and len(readings) < MOST_CALLS):
        call = subject.ready()
        start = perf_counter_ns()
        wait(call())
        readings.append(perf_counter_ns() - start)
        spent += readings[-1]
    return readings


TIMERS: dict[str, Trial] = {"wall": wall}
ANSWERS = {"wall": "latency a caller sees"}


def check_timer(timer: str) -> str:
    """`timer`, if there is one of that name.

    Raises:
        UsageError: there is none; lists those that are.
    """
    if timer not in TIMERS:
        raise UsageError(f"unknown timer {timer!r} for a grid", one_of(TIMERS, str(timer)))
    return timer
