"""With which earlier row a new one is compared, and what the comparison says.

The first run of the same commit, clean or dirty; where this commit has none, the previous commit, there the newest
clean run, since a dirty one may hold what was committed next. Or the run that was pinned. What a comparison of two
sessions can say is decided in `benchax.comparing.stored`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax.comparing.stored import BYTES, TIMES, Judged, judge
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.settings import Pin, PluginSettings

METRICS = (*TIMES, "compile", *BYTES)
FIRST_LOOK = 64
"""Rows read from the end of the file; eight times as many with each further look."""
FOREIGN = "its bytes were counted by pytest-jax-bench, whose peak leaves out some of them"

Row = Mapping[str, Any]


def find_reference(row: Row, csv: Path, settings: PluginSettings) -> dict[str, Any] | None:
    """The row that `row`, which is in the file already, is compared with; None where there is none."""
    if settings.no_compare:
        return None
    look = FIRST_LOOK
    while True:
        rows = _read_newest(csv, look)
        earlier = [r for r in rows if _is_earlier(r, row)]
        is_all = len(rows) < look
        if (found := _choose_reference(row, earlier, settings.pin, is_all)) is not None or is_all:
            return found
        look *= 8


def _read_newest(csv: Path, count: int) -> list[dict[str, Any]]:
    data = csv_files.newest(csv, count)
    return [dict(zip(data.dtype.names or (), one, strict=True)) for one in data.tolist()]


def _is_earlier(row: Row, new: Row) -> bool:
    """Of the same tag, in an earlier session, and successful."""
    return row["tag"] == new["tag"] and row["run_id"] < new["run_id"] and row["status"] in ("ok", "")


def _choose_reference(
    new: Row, earlier: Sequence[dict[str, Any]], pin: Pin | None, is_all: bool
) -> dict[str, Any] | None:
    """None where there is none, or an older row, not read yet, might have to be chosen."""
    if pin is not None:
        return _find_pinned(new, earlier, pin, is_all)
    same = [r for r in earlier if _commit(r) == _commit(new)]
    others = [r for r in earlier if _commit(r) != _commit(new)]
    if same:
        # Rows of another commit before them: then the first one has been read.
        return same[0] if others or is_all or same[0]["commit_run"] == 0 else None
    previous = [r for r in others if _commit(r) == _commit(others[-1])]
    clean = [r for r in previous if not r["commit"].endswith("+")]
    return (clean or previous or [None])[-1]


def _find_pinned(new: Row, earlier: Sequence[dict[str, Any]], pin: Pin, is_all: bool) -> dict[str, Any] | None:
    commit = pin.commit or _commit(new)
    # 0.5.0 could name a commit after a tag (v0.2, v0.2-3-g6bc9501). Users may give more digits than are stored.
    rows = [
        r for r in earlier if (c := _commit(r).rpartition("-g")[2]) and (c.startswith(commit) or commit.startswith(c))
    ]
    rows = rows or [r for r in earlier if _commit(r).startswith(commit)]
    if pin.run is not None:
        return next((r for r in rows if r["commit_run"] == pin.run), None)
    return rows[0] if rows and (is_all or rows[0]["commit_run"] == 0) else None


def _commit(row: Row) -> str:
    return row["commit"].removesuffix("+")


def judge_metrics(old: Row, new: Row) -> dict[str, Judged]:
    """What can be said of each metric that either row has."""
    return {metric: _judge_metric(old, new, metric) for metric in METRICS if has(old, metric) or has(new, metric)}


def _judge_metric(old: Row, new: Row, metric: str) -> Judged:
    if metric in BYTES and not old["environment"]:
        return Judged("unclear", FOREIGN)
    return judge(old, new, metric)


def has(row: Row, metric: str) -> bool:
    value = row[column_of(metric)]
    return value == value and value >= 0  # NaN is unlike itself


def column_of(metric: str) -> str:
    """Of the number that stands for `metric`; rows of 0.5.0 have no medians."""
    return metric if metric in BYTES else "compile_ms" if metric == "compile" else f"{metric}_median_ms"


def number_of(row: Row, metric: str) -> float:
    """Milliseconds or bytes. The mean where there is no median, as in rows of pytest-jax-bench 0.5.0."""
    value = row[column_of(metric)]
    return row[f"{metric}_mean_ms"] if metric in TIMES and value != value else value
