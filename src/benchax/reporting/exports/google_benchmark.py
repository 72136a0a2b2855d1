"""google-benchmark JSON, schema 1, for its `tools/compare.py`.

Each case is one row, whose `real_time` is the median. The export omits repetitions, because compare.py would test
samples of one process as if they were independent. CPU time is not measured, and a case that failed has no time at all.
Both are NaN, as the library itself writes a missing number (json_reporter.cc, FormatKV). So this is the only export
that is not strict JSON. Use another format for readers that require strict JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from benchax.reporting.exports.entries import ExportedCase, common_environment, drop_unknown, nanoseconds

NOT_MEASURED = math.nan


def text(found: Sequence[ExportedCase]) -> str:
    return (
        json.dumps(
            {"context": _context(found), "benchmarks": [_row(entry, i) for i, entry in enumerate(found)]}, indent=2
        )
        + "\n"
    )


def _context(found: Sequence[ExportedCase]) -> dict[str, Any]:
    env = common_environment([entry.m for entry in found])
    date = min((entry.m.started_at for entry in found), default=None)
    context = {
        "date": date,
        "host_name": env.get("host"),
        "executable": "benchax",
        "num_cpus": env.get("cores"),
        "json_schema_version": 1,
    }
    facts = ("benchax", "jax", "jaxlib", "backend", "device_kind", "processor", "commit")  # free keys are texts
    return drop_unknown(context | {name: str(env[name]) for name in facts if name in env})


def _row(entry: ExportedCase, index: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.label,
        "family_index": index,
        "per_family_instance_index": 0,
        "run_name": entry.label,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
    }
    return row | _times(entry) | _counters(entry)


def _times(entry: ExportedCase) -> dict[str, Any]:
    unit = {"time_unit": "ns", "label": entry.detail}
    if entry.samples is None or entry.summary is None:
        why = {"error_occurred": True, "error_message": entry.why}
        return why | {"iterations": 0, "real_time": NOT_MEASURED, "cpu_time": NOT_MEASURED} | unit
    calls = sum(each.iterations * len(each.elapsed_s) for each in entry.m.series_of(entry.samples.timer))
    return {"iterations": calls, "real_time": nanoseconds(entry.summary.median_s), "cpu_time": NOT_MEASURED} | unit


def _counters(entry: ExportedCase) -> dict[str, Any]:
    s = entry.summary
    times = {"low_95_s": s.low_s, "high_95_s": s.high_s} if s else {}
    return drop_unknown(entry.rates | times | {"compile_s": entry.compile_s} | entry.counted)
