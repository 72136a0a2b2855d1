"""Calls over several devices are timed like any others: what stands above them in the program does not count."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benchax.experiments.devices import LEAST_READINGS, time_calls


def under(frames: int, call: Callable[[], Any]) -> Any:
    """`call()`, so many frames further down."""
    return call() if frames == 0 else under(frames - 1, call)


def count_frames() -> int:
    frame, count = sys._getframe().f_back, 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def test_calls_are_timed_without_the_frames_of_whoever_asks() -> None:
    depths: list[int] = []

    under(100, lambda: time_calls(lambda: depths.append(count_frames()), enough_s=0.0))

    assert depths == [2] * LEAST_READINGS  # the call itself, and `time_calls`
