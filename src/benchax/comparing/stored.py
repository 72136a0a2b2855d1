"""What two stored rows of one benchmark, measured in different sessions, can say about each other. Little.

Between sessions the machine changes more than code does. In recordings of unchanged functions (21 processes on a busy
virtual machine, six functions of 8 µs to 20 ms, 20 rounds each) medians differed by up to a factor of 8, least times by
up to 3, and a rule of "5 % on the mean" alarmed in 44 % of comparisons. So only a factor that unchanged code reached in
less than one comparison in a hundred, in the least time *and* in the median, is called slower or faster; all else is
unclear. Smaller effects need both versions side by side in one session. What compilers count is compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from benchax.errors import UsageError, one_of
from benchax.units import number

Verdict = Literal["faster", "slower", "same", "unclear"]

FACTOR = 2.5
LEAST_ROUNDS = 20
"""The recordings hold for this many; with fewer a chance streak is longer."""
COMPILE_FACTOR = 6.0
"""Single readings: unchanged functions took up to 9 times as long, 1 in 100 more than 6."""

TIMES = ("jit", "eager")
BYTES = ("jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes", "eager_peak_bytes")
COUNTED = ("jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes")
"""By the compiler, so that any difference is one of the program. The eager peak is observed."""


@dataclass(frozen=True)
class Judged:
    verdict: Verdict
    why: str


def judge(old: Mapping[str, Any], new: Mapping[str, Any], metric: str) -> Judged:
    """Compares two rows of a CSV file (`pytest_jax_bench.csv`) in one metric.

    Args:
        old, new: baseline and candidate.
        metric: "jit", "eager", "compile", or one of the columns in bytes. Less is faster, in bytes as well.

    Returns:
        A verdict, and in a sentence what it rests on.

    Raises:
        UsageError: another metric.
    """
    if metric in BYTES:
        return _bytes(old, new, metric)
    if metric not in (*TIMES, "compile"):
        raise UsageError(f"cannot judge {metric!r}", one_of([*TIMES, "compile", *BYTES], metric))
    if (why := _not_comparable(old, new)) is not None:
        return Judged("unclear", why)
    return _compile(old, new) if metric == "compile" else _times(old, new, metric)


def _not_comparable(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    if "" in (old["environment"], new["environment"]):
        return "where the older row was measured is not known"
    if old["environment"] != new["environment"]:
        return "they were measured in different environments"
    return None


def _times(old: Mapping[str, Any], new: Mapping[str, Any], kind: str) -> Judged:
    if kind == "jit" and old["timer"] != new["timer"]:
        return Judged("unclear", f"one was timed by {old['timer'] or 'an unknown timer'}, one by {new['timer']}")
    ratios = [_ratio(old[f"{kind}_{name}_ms"], new[f"{kind}_{name}_ms"]) for name in ("min", "median")]
    least, median = ratios
    if least is None or median is None:
        return Judged("unclear", "one of them has no least and median time")
    if min(old[f"{kind}_rounds"], new[f"{kind}_rounds"]) < LEAST_ROUNDS:
        return Judged("unclear", f"fewer than {LEAST_ROUNDS} rounds")
    return _by_factor(min(least, median), max(least, median), FACTOR)


def _compile(old: Mapping[str, Any], new: Mapping[str, Any]) -> Judged:
    ratio = _ratio(old["compile_ms"], new["compile_ms"])
    return (
        Judged("unclear", "one of them was not measured") if ratio is None else _by_factor(ratio, ratio, COMPILE_FACTOR)
    )


def _by_factor(low: float, high: float, factor: float) -> Judged:
    if low >= factor:
        return Judged("slower", f"{number(low)} times the older one, or more")
    if high <= 1 / factor:
        return Judged("faster", f"{number(1 / high)} times as fast, or more")
    why = f"times of two sessions tell no difference below a factor of {number(factor)}"
    return Judged("unclear", why)


def _bytes(old: Mapping[str, Any], new: Mapping[str, Any], metric: str) -> Judged:
    before, after = old[metric], new[metric]
    if min(before, after) < 0:
        return Judged("unclear", "one of them was not measured")
    if before == after:
        return Judged("same", "to the byte")
    if metric not in COUNTED:
        return Judged("unclear", "an observed peak differs from run to run")
    return Judged("slower" if after > before else "faster", "counted by the compiler")


def _ratio(old: float, new: float) -> float | None:
    if not (math.isfinite(old) and math.isfinite(new)) or min(old, new) <= 0:
        return None
    return new / old
