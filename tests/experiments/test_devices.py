"""Calls over several devices are timed like any others: what stands above them in the program does not count."""

from __future__ import annotations

from stack_depths import count_frames, under

from benchax.experiments.devices import LEAST_READINGS, time_calls


def test_calls_are_timed_without_the_frames_of_whoever_asks() -> None:
    depths: list[int] = []

    under(100, lambda: time_calls(lambda: depths.append(count_frames()), enough_s=0.0))

    assert depths == [2] * LEAST_READINGS  # the call itself, and `time_calls`
