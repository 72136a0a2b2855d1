"""Intervals for a later run: their coverage in recorded runs, and by simulation with fixed seeds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest
from measurement_strategies import measured

from benchax.measuring.sampling import is_known_well
from benchax.model import EarlierRuns, Measurement, Samples
from benchax.stats.intervals import (
    ENOUGH_RUNS,
    LEAST_MARGIN,
    agreeing,
    middle_of_agreeing,
    predict_interval,
)
from benchax.stats.summary import Summary, summarize, summarize_run

RECORDED = json.loads((Path(__file__).parent / "recorded_runs.json").read_text())
"""Load → timer → function → runs, oldest first → the median of each of five processes, in microseconds. Two cores, at a
load of 1 to 2 (quiet) and of 8 to 14 (busy)."""
INSIDE = {"quiet": 0.90, "busy": 0.80}


def run(timer: str, medians_s: list[float], earlier: list[float]) -> Measurement:
    """A row with these processes, and what earlier runs read."""
    samples = tuple(Samples(timer, 1, (s,) * 6, process=i) for i, s in enumerate(medians_s))
    return replace(measured("f"), samples=samples, earlier_runs=EarlierRuns("abc", {timer: tuple(earlier[-30:])}))


def replay(timer: str, runs: list[list[float]]) -> Iterator[Summary]:
    """What each run says, with as many of its five processes as it needs and the runs before it as its history."""
    earlier: list[float] = []
    for medians_us in runs:
        for count in range(1, len(medians_us) + 1):
            row = run(timer, [1e-6 * m for m in medians_us[:count]], earlier)
            if is_known_well(row, timer, None):
                break
        summary = row.summary(timer)
        assert summary is not None
        earlier.append(summary.median_s)
        yield summary


@pytest.mark.parametrize("timer", ["in_graph", "wall"])
@pytest.mark.parametrize("load", [*INSIDE])
def test_later_runs_read_a_time_inside_the_interval(load: str, timer: str) -> None:
    held, processes = [], []

    for runs in RECORDED[load][timer].values():
        said = list(replay(timer, runs))
        held += [a.low_s <= b.median_s <= a.high_s for a, b in combinations(said, 2) if a.low_s and a.high_s]
        processes += [s.processes for s in said[ENOUGH_RUNS:]]

    assert fmean(held) >= INSIDE[load]
    assert fmean(processes) < 2.5


@pytest.mark.parametrize(("timer", "widest"), [("in_graph", 0.15), ("wall", 0.35)])
def test_intervals_on_a_quiet_machine_are_narrow(timer: str, widest: float) -> None:
    said = [s for runs in RECORDED["quiet"][timer].values() for s in replay(timer, runs)]

    assert median(s.high_s / s.low_s - 1 for s in said if s.low_s and s.high_s) <= widest
    assert all(s.low_s and s.high_s and s.low_s <= s.median_s <= s.high_s for s in said)


def processes(rng: np.random.Generator, count: int, between: float, slow: float = 0.0) -> list[float]:
    """The medians of processes, of which a share is far slower."""
    levels = rng.normal(0, between, count) + (rng.random(count) < slow) * rng.uniform(0.2, 0.6, count)
    return np.exp(levels).tolist()


@pytest.mark.parametrize("count", [3, 5, 8])
@pytest.mark.parametrize(("between", "slow"), [(0.01, 0.0), (0.05, 0.0), (0.3, 0.0), (0.02, 0.1)])
def test_a_repetition_with_as_many_processes_is_inside_the_interval(count: int, between: float, slow: float) -> None:
    rng = np.random.default_rng(count)
    held = []

    for _ in range(1000):
        low, high = predict_interval(processes(rng, count, between, slow)) or (1.0, 0.0)
        held.append(low <= middle_of_agreeing(processes(rng, count, between, slow)) <= high)

    # Few values of a wide distribution say too little of its ends.
    assert fmean(held) >= (0.80 if between > 0.1 and count < 8 else 0.90)


def test_a_run_at_another_moment_is_inside_if_it_is_known_what_moments_scatter_by() -> None:
    rng = np.random.default_rng(1)

    def at_a_moment() -> list[float]:
        pace = float(np.exp(rng.normal(0, 0.06)))
        return [pace * m for m in processes(rng, 5, 0.01)]

    pairs = [(at_a_moment(), middle_of_agreeing(at_a_moment())) for _ in range(1000)]
    aware = [predict_interval(run, pace_scatter=0.06) or (1.0, 0.0) for run, _ in pairs]
    unaware = [predict_interval(run) or (1.0, 0.0) for run, _ in pairs]

    assert fmean(low <= later <= high for (low, high), (_, later) in zip(aware, pairs, strict=True)) >= 0.95
    assert fmean(low <= later <= high for (low, high), (_, later) in zip(unaware, pairs, strict=True)) < 0.7


def test_one_slow_process_of_five_moves_neither_the_time_nor_its_interval() -> None:
    agree = [5.08, 5.11, 5.16, 5.31]

    assert middle_of_agreeing([*agree, 6.4]) == pytest.approx(5.11)
    assert agreeing([6.4, *agree]) == agree
    assert predict_interval([*agree, 6.4]) == predict_interval(agree)
    assert summarize_run([[m] * 9 for m in (*agree, 6.4)]).outlying_s == (6.4,)


@pytest.mark.parametrize("medians", [[1.0, 1.02, 1.4], [1.0, 1.01, 1.02, 1.3, 1.4], [0.8, 1.0, 1.01, 1.02, 1.4]])
def test_processes_that_scatter_all_count(medians: list[float]) -> None:
    assert agreeing(medians) == medians

    low, high = predict_interval(medians) or (1.0, 0.0)

    assert low < medians[0]
    assert high > medians[-1]


EARLIER = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07]


@pytest.mark.parametrize(
    ("medians", "earlier", "low", "high"),
    [
        ([1.03], EARLIER, 1.007, 1.063),
        # A run outside of the earlier ones is still inside its own interval.
        ([2.0, 2.0], [1.0] * ENOUGH_RUNS, 1.0, 2.0),
    ],
)
def test_with_enough_earlier_runs_their_range_is_the_interval(
    medians: list[float], earlier: list[float], low: float, high: float
) -> None:
    found = predict_interval(medians, earlier, margin=0.5, pace_scatter=0.5)

    assert found == pytest.approx((low / (1 + LEAST_MARGIN), high * (1 + LEAST_MARGIN)))
    # Two values far apart claim little beyond themselves.
    least, most = predict_interval([1.0], [30.0], margin=0.1) or (0.0, 99.0)
    assert 0.7 < least < most < 43


def test_one_process_without_earlier_runs_speaks_for_itself_only() -> None:
    readings = np.random.default_rng(0).uniform(1, 1.1, 50).tolist()
    eaten = summarize_run([[1.0] * 9, [-1.0] * 9, [1.0] * 9])  # a difference that noise has eaten

    assert predict_interval([1.0]) is None
    assert summarize_run([readings]) == summarize(readings)
    assert summarize_run([readings]).scope == "process"
    assert summarize_run([readings], earlier=[1.05]).scope == "run"
    assert (eaten.low_s, eaten.high_s, eaten.scope) == (None, None, "process")
    for earlier_s in (0.0, -1.0):
        assert summarize_run([[1.0] * 9, [1.1] * 9], earlier=[earlier_s]).low_s is None


RUNS = [1.0, 1.3] * ENOUGH_RUNS


@pytest.mark.parametrize(
    ("timer", "medians", "earlier", "wanted", "is_enough"),
    [
        ("wall", [1.0], [], None, False),
        ("wall", [1.0, 1.25], [], None, False),
        ("wall", [1.0, 1.01], [], None, True),
        ("wall", [1.0, 1.01], [], 0.05, False),
        ("wall", [1.0, 1.25], [], 0.5, True),
        # The margin of a program's own time is narrower, and so is the request.
        ("in_graph", [1.0, 1.08], [], None, False),
        # One process is enough if it reads what earlier runs did.
        ("wall", [1.2], RUNS, None, True),
        ("wall", [1.5], RUNS, None, False),
        ("wall", [0.5], RUNS, None, False),
    ],
)
def test_processes_are_added_until_the_interval_is_as_narrow_as_requested(
    timer: str, medians: list[float], earlier: list[float], wanted: float | None, is_enough: bool
) -> None:
    assert is_known_well(run(timer, medians, earlier), timer, wanted) is is_enough
