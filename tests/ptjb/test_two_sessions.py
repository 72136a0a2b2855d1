"""What is said of two rows that were measured in different sessions: hardly ever more than they can support."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pytest_jax_bench.baseline import COMPILE_FACTOR, FACTORS, MetricVerdict, judge

SESSIONS = Path(__file__).parent.parent / "data" / "sessions.npz"
"""Recordings of unchanged functions; its README entry describes them."""


def row(**changes: Any) -> dict[str, Any]:
    usual = {
        "environment": "0123456789ab", "timer": "wall", "jit_rounds": 20, "eager_rounds": 20, "compile_ms": 50.0,
        "jit_min_ms": 1.0, "jit_median_ms": 1.2, "eager_min_ms": 2.0, "eager_median_ms": 2.2,
        "jit_peak_bytes": 1000, "jit_constants_bytes": 4, "jit_temporary_bytes": 0, "eager_peak_bytes": 2000,
    }  # fmt: skip
    return usual | changes


@pytest.mark.parametrize("rounds", [(20, 20), (10, 10), (5, 5), (3, 3), (20, 10), (20, 5), (5, 20), (3, 20), (20, 3)])
def test_unchanged_code_is_called_slower_or_faster_in_less_than_one_comparison_in_a_hundred(rounds) -> None:
    """Each of 21 sessions against each other one, for six functions: recorded, on a busy machine."""
    with np.load(SESSIONS) as recorded:
        functions = [recorded[name] for name in recorded.files if name != "README"]
    found = []
    for times_ms in functions:
        for i, j in np.argwhere(~np.eye(len(times_ms), dtype=bool)):
            old, new = times_ms[i, 0, : rounds[0]], times_ms[j, 1, : rounds[1]]
            rows = [
                row(jit_min_ms=float(t.min()), jit_median_ms=float(np.median(t)), jit_rounds=len(t)) for t in (old, new)
            ]
            found.append(judge(*rows, "jit").verdict)

    assert len(found) == 6 * 21 * 20
    assert found.count("slower") / len(found) < 0.01
    assert found.count("faster") / len(found) < 0.01


@pytest.mark.parametrize("kind", ["jit", "eager"])
def test_a_factor_in_the_least_and_the_median_is_called(kind: str) -> None:
    def scaled(least: float, median: float) -> dict[str, Any]:
        return row(
            **{
                f"{kind}_min_ms": row()[f"{kind}_min_ms"] * least,
                f"{kind}_median_ms": row()[f"{kind}_median_ms"] * median,
            }
        )

    assert judge(row(), scaled(3, 6), kind) == MetricVerdict("slower", "3.00 times the older one, or more")
    assert judge(row(), scaled(0.125, 0.25), kind) == MetricVerdict("faster", "4.00 times as fast, or more")
    assert judge(row(), scaled(0.99 * FACTORS[0][1], 9), kind).verdict == "unclear"
    assert judge(row(), scaled(1.1, 9), kind).verdict == "unclear"
    assert judge(row(), scaled(0.4, 1.1), kind).verdict == "unclear"


@pytest.mark.parametrize(("rounds", "factor"), [(30, 2.5), (20, 2.5), (19, 3), (10, 3), (9, 4), (5, 4), (4, 6), (3, 6)])
def test_fewer_rounds_take_a_greater_factor(rounds: int, factor: float) -> None:
    def scaled(by: float) -> dict[str, Any]:
        return row(jit_rounds=rounds, jit_min_ms=by * row()["jit_min_ms"], jit_median_ms=by * row()["jit_median_ms"])

    assert judge(row(), scaled(1.01 * factor), "jit").verdict == "slower"
    assert judge(row(), scaled(0.99 / factor), "jit").verdict == "faster"
    assert judge(row(), scaled(0.99 * factor), "jit").verdict == "unclear"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "times of two sessions tell no difference below a factor of 2.50"),
        ({"environment": "ba9876543210"}, "they were measured in different environments"),
        ({"environment": ""}, "where the older row was measured is not known"),
        ({"timer": "in_graph"}, "one was timed by in_graph, one by wall"),
        ({"timer": ""}, "one was timed by an unknown timer, one by wall"),
        ({"jit_median_ms": float("nan")}, "one of them has no least and median time"),
        ({"jit_min_ms": 0.0}, "one of them has no least and median time"),
        ({"jit_rounds": 19}, "times of two sessions tell no difference below a factor of 3.00 at fewer than 20 rounds"),
        ({"jit_rounds": 5}, "times of two sessions tell no difference below a factor of 4.00 at fewer than 10 rounds"),
        ({"jit_rounds": 2}, "fewer than 3 rounds"),
    ],
)
def test_what_is_unclear_has_its_reason(changes: dict[str, Any], why: str) -> None:
    assert judge(row(**changes), row(), "jit") == MetricVerdict("unclear", why)


@pytest.mark.parametrize("metric", ["jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes"])
def test_bytes_that_the_compiler_counts_are_compared_exactly(metric: str) -> None:
    more = row(**{metric: row()[metric] + 1})

    assert judge(row(), row(), metric) == MetricVerdict("same", "to the byte")
    assert judge(row(), more, metric) == MetricVerdict("slower", "counted by the compiler")
    assert judge(more, row(), metric) == MetricVerdict("faster", "counted by the compiler")
    assert judge(row(**{metric: -1}), row(), metric) == MetricVerdict("unclear", "one of them was not measured")
    assert judge(row(environment="ba9876543210"), row(), metric).verdict == "same"  # still those of the program


@pytest.mark.parametrize(
    ("old", "new", "metric", "verdict"),
    [
        (row(), row(compile_ms=50 * (COMPILE_FACTOR - 1)), "compile", "unclear"),  # single readings
        (row(), row(compile_ms=50 * COMPILE_FACTOR * 1.01), "compile", "slower"),
        (row(), row(compile_ms=0.99 * 50 / COMPILE_FACTOR), "compile", "faster"),
        (row(compile_ms=float("nan")), row(), "compile", "unclear"),
        (row(), row(eager_peak_bytes=2001), "eager_peak_bytes", "unclear"),  # observed
    ],
)
def test_what_is_less_certain_needs_more(old, new, metric: str, verdict: str) -> None:
    assert judge(old, new, metric).verdict == verdict
