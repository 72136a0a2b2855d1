"""pytest-benchmark's JSON (keys of 5.3.1), in seconds per call: what `pytest-benchmark compare` reads.

Every reading is in `stats.data`, and the statistics are computed from them as pytest-benchmark does. Compile time,
memory, the interval and the timer are in `extra_info`. Cases without times are left out, since the format has no row
without statistics.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

from benchax.model import Samples
from benchax.reporting.exports.entries import ExportedCase, common_environment, drop_unknown, plain, strict_json

VERSION = "5.3.1"
"""Whose keys are written."""


def text(found: Sequence[ExportedCase]) -> str:
    return strict_json(document(found), indent=None)


def document(found: Sequence[ExportedCase]) -> dict[str, Any]:
    """The same, before it is a text."""
    rows = [entry.m for entry in found if entry.samples]
    env = common_environment(rows)
    return {
        "machine_info": _machine(env),
        "commit_info": _commit(env),
        "benchmarks": [_benchmark(entry, entry.samples) for entry in found if entry.samples],
        "datetime": min((m.started_at for m in rows), default=None),
        "version": VERSION,
    }


def _machine(env: dict[str, Any]) -> dict[str, Any]:
    facts = {
        "node": env.get("host"),
        "processor": env.get("processor"),
        "system": env.get("os"),
        "python_version": env.get("python"),
        "cpu": drop_unknown({"brand_raw": env.get("processor"), "count": env.get("cores")}),
    }
    jax = {name: env.get(name) for name in ("benchax", "jax", "jaxlib", "backend", "device_kind")}
    return drop_unknown(facts | jax)


def _commit(env: dict[str, Any]) -> dict[str, Any]:
    """As pytest-benchmark says that it does not know."""
    return {
        "id": env.get("commit", "unknown"),
        "time": None,
        "author_time": None,
        "dirty": env.get("is_dirty"),
        "branch": env.get("branch", "(unknown)"),
    }


def _benchmark(entry: ExportedCase, samples: Samples) -> dict[str, Any]:
    m = entry.m
    params = {key: plain(value) for key, value in m.case.params}
    every = [value for each in m.series_of(samples.timer) for value in each.per_call_s]
    # A difference that noise has eaten is no time, and whoever reads the file would show it as the least one.
    readings = [value for value in every if value > 0] or every
    left_out = {"readings_not_above_0": len(every) - len(readings)} if len(readings) < len(every) else {}
    return {
        "group": m.case.tag or None,
        "name": entry.label,
        "fullname": entry.label,
        "params": params or None,
        "param": "-".join(map(str, params.values())) if params else None,
        "extra_info": _extra(entry) | left_out,
        "options": {"timer": samples.timer, "max_time": plain(m.options.max_time_s)},
        "stats": stats(readings) | {"data": readings, "iterations": samples.iterations},
    }


def _extra(entry: ExportedCase) -> dict[str, Any]:
    m, s = entry.m, entry.summary
    times = {"median_low_95_s": s.low_s, "median_high_95_s": s.high_s} if s else {}
    what = {"case": m.case.name, "variant": m.case.variant or None, "signature": m.signature or None}
    return drop_unknown(
        entry.rates
        | what
        | times
        | {"compile_s": entry.compile_s}
        | entry.counted
        | {"host": m.environment.host, "commit": m.environment.commit, "fingerprint": m.environment.fingerprint}
    )


def stats(values: Sequence[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics (its stats.py) of at least one value. `stddev` of a single one is 0 there."""
    ordered = sorted(values)
    mean, q1, q3 = statistics.mean(ordered), *_quartiles(ordered)
    stddev = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    beyond_fences = sum(not low <= v <= high for v in ordered)
    beyond_stddev = sum(not mean - stddev <= v <= mean + stddev for v in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": beyond_fences,
        "stddev_outliers": beyond_stddev,
        "outliers": f"{beyond_stddev};{beyond_fences}",
        "ld15iqr": ordered[min(bisect_left(ordered, low), len(ordered) - 1)],
        "hd15iqr": ordered[max(bisect_right(ordered, high) - 1, 0)],
        "ops": len(ordered) / sum(ordered),
        "total": sum(ordered),
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """By pytest-benchmark's own rule: halves without the middle for even counts, method 3 for odd ones."""
    count = len(ordered)
    if count == 1:
        return ordered[0], ordered[0]
    if count % 2 == 0:
        return statistics.median(ordered[: count // 2]), statistics.median(ordered[count // 2 :])
    n, rest = divmod(count, 4)
    if rest == 1:
        return 0.25 * ordered[n - 1] + 0.75 * ordered[n], 0.75 * ordered[3 * n] + 0.25 * ordered[3 * n + 1]
    return 0.75 * ordered[n] + 0.25 * ordered[n + 1], 0.25 * ordered[3 * n + 1] + 0.75 * ordered[3 * n + 2]
