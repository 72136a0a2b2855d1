"""Reads one trial of a cell by each timer, and turns the trials of a cell into the samples of its row.

`wall` is the latency that a caller sees: one call and the wait for all its outputs. It repeats until about 1 ms is
spent or 50 calls are made, at least once. Only the call and the wait are inside a reading. Fresh buffers for a function
that donates its inputs are made before it. Any other timer is prepared on the inputs of each trial and takes readings
for TRIAL_S. `in_graph` and `loop` compile separate programs for this.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter_ns

import jax

from benchax.machine import noise
from benchax.measuring import timers
from benchax.measuring.fresh_stack import on_fresh_stack
from benchax.measuring.sampling import believable, collect
from benchax.measuring.timers.base import Subject
from benchax.model import Options, Samples

SPAN_NS = 1_000_000
MOST_CALLS = 50
TRIAL_S = 0.05
"""The length of readings by a timer that prepares: programs take longer to compile than this."""


def read_trial(timer: str, subject: Subject, options: Options, call_s: float) -> Samples:
    """The readings of one trial, per call and net of the timer's own cost.

    Args:
        call_s: the shortest observed call of the function itself; 0 if there was no call.

    Raises:
        NotMeasured: the timer does not work for this function, or its readings are not believable.
    """
    if timer == "wall":
        return samples_of_calls(_call_for_a_while(subject))
    limited = replace(options, max_time_s=TRIAL_S, min_time_s=min(options.min_time_s, TRIAL_S))
    samples = collect(timer, timers.TIMERS[timer].prepare(subject), limited, lambda share: None, call_s=call_s)
    return believable(replace(samples, answers=timers.TIMERS[timer].answers), call_s)


def samples_of_calls(elapsed_ns: list[int]) -> Samples:
    """Readings by `wall` of single calls."""
    elapsed_s = tuple(ns / 1e9 for ns in elapsed_ns)
    answers = timers.TIMERS["wall"].answers
    return Samples("wall", 1, elapsed_s, resolution_s=noise.clock_resolution_s(), answers=answers)


def join_trials(trials: Iterable[Samples]) -> tuple[Samples, ...]:
    """Returns one for each timer, in the order of their first trials. If trials differ in the number of calls in a
    reading, all count as readings of the smallest number."""
    by_timer: dict[str, list[Samples]] = {}
    for samples in trials:
        by_timer.setdefault(samples.timer, []).append(samples)
    return tuple(_join(found) for found in by_timer.values())


def _join(trials: list[Samples]) -> Samples:
    # Not 1: the clock's step is judged by how long a reading is, and one of many calls is that much longer.
    iterations = min(trial.iterations for trial in trials)
    return replace(
        trials[0],
        iterations=iterations,
        elapsed_s=tuple(s * iterations for trial in trials for s in trial.per_call_s),
        disturbed=None,
        overhead_s=None,
        stop=None,
        trials=tuple(len(trial.elapsed_s) for trial in trials),
    )


@on_fresh_stack
def _call_for_a_while(subject: Subject) -> list[int]:
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
