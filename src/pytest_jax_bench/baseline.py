"""The earlier row that a new one is compared with, and the limits of this comparison.

It is the first run of the same commit, clean or dirty. If this commit has no run, it is the previous commit's newest
clean run. A dirty run might contain the changes of the next commit. A pinned run replaces both.

Between sessions the machine changes more than code does. In recordings of unchanged functions, medians differed by up
to a factor of 8, and least times by up to 3. A rule of "5 % on the mean" alarmed in 44 % of comparisons. (21 processes
on a busy virtual machine, six functions of 8 µs to 20 ms, 20 rounds each.)

So a factor must be one that unchanged code reached in less than one comparison in a hundred. Only such a factor, in the
least time *and* in the median, counts as slower or faster. The factor is 2.5 from 20 rounds up, and higher with fewer;
everything else is unclear. Smaller effects need both versions side by side in one session (`fail_slower.py`). The
compiler's counts are compared exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax.stats.verdicts import Verdict
from benchax.units import number, seconds
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.csv.lines import CURRENT, parse
from pytest_jax_bench.options import Pin, PluginSettings

FACTORS = ((20, 2.5), (10, 3.0), (5, 4.0), (3, 6.0))
"""(rounds, factor): with at least this many rounds in both rows, this factor counts as a change. With fewer rounds a
chance streak is a greater share of them. In the recordings less than 1 % of comparisons of unchanged functions exceed
each factor. Below 3 rounds nothing counts, because 1 % need a factor of 4 to 10 there."""
LEAST_ROUNDS = FACTORS[-1][0]
LEAST_CHANGE_MS = 0.1
"""A smaller change of a time doesn't count, because XLA's threads can sleep or stay awake through all rounds of a
session. In 400 comparisons of unchanged functions of 5 to 500 µs, 14 changes reached the factor. 13 of them were 29 to
85 µs. With this limit, another 400 comparisons had one that counted."""
COMPILE_FACTOR = 6.0
"""Single readings: unchanged functions took up to 9 times as long, 1 in 100 more than 6."""

TIMES = ("jit", "eager")
BYTES = ("jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes", "eager_peak_bytes")
COUNTED = ("jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes")
"""By the compiler, so that any difference is one of the program. The eager peak is observed."""

METRICS = (*TIMES, "compile", *BYTES)
FOREIGN = "its bytes were counted by pytest-jax-bench, whose peak leaves out some of them"

Row = Mapping[str, Any]


def find_reference(row: Row, csv: Path, settings: PluginSettings) -> dict[str, Any] | None:
    """Returns the row to compare `row` with, which is in the file already, or None if there is no such row."""
    if settings.no_compare:
        return None
    earlier = [
        head
        for head in csv_files.newest_heads(csv)
        if head["tag"] == row["tag"] and head["run_id"] < row["run_id"] and head["status"] in ("ok", "")
    ]
    if settings.pin is not None:
        found = _find_pinned(row, earlier, settings.pin)
    elif not (found := [head for head in reversed(earlier) if _commit(head) == _commit(row)]):
        previous = [head for head in earlier if _commit(head) == _commit(earlier[0])]
        found = [head for head in previous if not head["commit"].endswith("+")] or previous
    # A damaged row is no reference.
    return next(filter(None, (parse(head["line"], CURRENT) for head in found)), None)


def _find_pinned(new: Row, earlier: Sequence[Row], pin: Pin) -> list[Row]:
    """The rows of that commit, or of that run of it, the oldest first; `earlier` begins with the newest."""
    commit = pin.commit or _commit(new)
    # 0.5.0 could name a commit after a tag (v0.2, v0.2-3-g6bc9501). Users may give more digits than are stored.
    rows = [
        r for r in earlier if (c := _commit(r).rpartition("-g")[2]) and (c.startswith(commit) or commit.startswith(c))
    ]
    rows = rows or [r for r in earlier if _commit(r).startswith(commit)]
    return [r for r in reversed(rows) if pin.run in (None, r["commit_run"])]


def _commit(row: Row) -> str:
    return row["commit"].removesuffix("+")


def judge_metrics(old: Row, new: Row) -> dict[str, MetricVerdict]:
    """Judges each metric that either row has."""
    return {metric: judge(old, new, metric) for metric in METRICS if has(old, metric) or has(new, metric)}


def has(row: Row, metric: str) -> bool:
    value = row[column_of(metric)]
    return value == value and value >= 0  # NaN is unlike itself


def column_of(metric: str) -> str:
    """The column whose number stands for `metric`; rows of 0.5.0 have no medians."""
    return metric if metric in BYTES else "compile_ms" if metric == "compile" else f"{metric}_median_ms"


def number_of(row: Row, metric: str) -> float:
    """Returns milliseconds or bytes. If there is no median, as in rows of pytest-jax-bench 0.5.0, it returns the
    mean."""
    value = row[column_of(metric)]
    return row[f"{metric}_mean_ms"] if metric in TIMES and value != value else value


# ---- what two sessions can say ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class MetricVerdict:
    """The verdict of two rows on one metric, and a sentence with its basis."""

    verdict: Verdict
    why: str
    change: str = ""
    """By how much, where programs ran side by side: -50 %."""


def judge(old: Row, new: Row, metric: str) -> MetricVerdict:
    """Compares two rows of a CSV file (`pytest_jax_bench.csv`) in one metric.

    Args:
        old, new: baseline and candidate.
        metric: one of METRICS. Less is faster, in bytes as well.
    """
    if metric in BYTES:
        return _bytes(old, new, metric)
    is_compile = metric == "compile"
    columns = ("compile_ms",) if is_compile else (f"{metric}_min_ms", f"{metric}_median_ms")
    pairs = [(old[column], new[column]) for column in columns]
    rounds = FACTORS[0][0] if is_compile else min(old[f"{metric}_rounds"], new[f"{metric}_rounds"])
    factor = COMPILE_FACTOR if is_compile else next((factor for least, factor in FACTORS if rounds >= least), None)
    environments = (old["environment"], new["environment"])
    missing = "one of them was not measured" if is_compile else "one of them has no least and median time"
    doubts = {
        "where the older row was measured is not known": "" in environments,
        "they were measured in different environments": environments[0] != environments[1],
        # Timers have different costs inside their intervals; eager runs are always timed by wall.
        f"one was timed by {old['timer'] or 'an unknown timer'}, one by {new['timer']}": (
            metric == "jit" and old["timer"] != new["timer"]
        ),
        missing: not all(0 < number < math.inf for pair in pairs for number in pair),
        f"fewer than {LEAST_ROUNDS} rounds": factor is None,
    }
    if factor is None or any(doubts.values()):
        return MetricVerdict("unclear", next(why for why, is_so in doubts.items() if is_so))
    ratios = [after / before for before, after in pairs]
    enough = min((least for least, _ in FACTORS if least > rounds), default=0)
    at = f" at fewer than {enough} rounds" if enough else ""
    found = _by_factor(min(ratios), max(ratios), factor, at)
    if found.verdict != "unclear" and min(abs(after - before) for before, after in pairs) < LEAST_CHANGE_MS:
        least = seconds(LEAST_CHANGE_MS / 1e3)
        return MetricVerdict("unclear", f"times of two sessions can't resolve changes below {least}")
    return found


def _by_factor(low: float, high: float, factor: float, at: str) -> MetricVerdict:
    if low >= factor:
        return MetricVerdict("slower", f"{number(low)} times the older one, or more")
    if high <= 1 / factor:
        return MetricVerdict("faster", f"{number(1 / high)} times as fast, or more")
    return MetricVerdict("unclear", f"times of two sessions can't resolve factors below {number(factor)}{at}")


def _bytes(old: Row, new: Row, metric: str) -> MetricVerdict:
    before, after = old[metric], new[metric]
    if not old["environment"]:
        return MetricVerdict("unclear", FOREIGN)
    if min(before, after) < 0:
        return MetricVerdict("unclear", "one of them was not measured")
    if before == after:
        return MetricVerdict("same", "to the byte")
    if metric not in COUNTED:
        return MetricVerdict("unclear", "an observed peak differs from run to run")
    return MetricVerdict("slower" if after > before else "faster", "counted by the compiler")
