"""From measurements to a row of the CSV file: milliseconds, bytes, NaN and -1 for what was not measured.

Only here and in `pytest_jax_bench.csv.files` do these exist; the rest of benchax has seconds and None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from statistics import fmean, pstdev
from typing import Any

from benchax.model import Environment, Measurement
from pytest_jax_bench.measure import Rounds, StepResults

NONE = -1
COMMIT_DIGITS = 7
UNKNOWN = "unknown"


def row_of(
    measured: StepResults, rounds: Rounds, *, tag: str, parameters: str, session: str, argument_bytes: int
) -> dict[str, Any]:
    """All columns but `run_id` and `commit_run`, which depend on what the file holds."""
    first = measured.rows[0] if measured.rows else None
    failed = next((m for m in measured.rows if m.failure is not None), None)
    failure = failed.failure if failed else None
    return {
        "commit": commit_of(first.environment) if first else UNKNOWN,
        "tag": tag,
        "parameters": parameters,
        **_compile_columns(measured.jit),
        **_time_columns("jit", measured.jit, rounds.jit_rounds),
        **_time_columns("eager", measured.eager, rounds.eager_rounds),
        "eager_peak_bytes": _eager_peak(measured.eager, argument_bytes),
        "jit_warmup": rounds.jit_warmup,
        "eager_warmup": rounds.eager_warmup,
        "first_run_ms": _first_run(measured),
        "status": failure.kind if failure else "ok",
        "message": f"{failure.stage}: {failure.message}" if failure else wrong_results(measured),
        "created": first.started_at if first else datetime.now(UTC).isoformat(timespec="microseconds"),
        "session": session,
        "environment": first.environment.fingerprint if first else "",
        "jax": (first.environment.jax or "") if first else "",
    }


def commit_of(environment: Environment) -> str:
    """6bc9501; 6bc9501+ where anything differs from it, or nobody knows; "unknown" without git."""
    if environment.commit is None:
        return UNKNOWN
    return environment.commit[:COMMIT_DIGITS] + ("" if environment.is_dirty is False else "+")


def wrong_results(measured: StepResults) -> str:
    """What casts doubt on the numbers themselves."""
    return "; ".join(r.message for m in measured.rows for r in m.remarks if r.severity == "error")


def other_timers(measured: StepResults) -> list[str]:
    """Where the first timer that was asked for could not serve: which one is shown, and why."""
    m = measured.jit
    if m is None or m.failure is not None or m.options.stages != "samples" or m.options.timer == "auto":
        return []
    asked = m.options.timer.split(",")[0]
    if m.headline is not None and m.headline.timer == asked:
        return []
    shown = f"timed by {m.headline.timer}" if m.headline else "no run time"
    return [f"{shown}, because {asked} could not serve: {m.why_absent(f'samples.{asked}')}"]


def _time_columns(kind: str, m: Measurement | None, asked: int) -> dict[str, Any]:
    """Of the first timer that could serve."""
    samples = m.headline if m else None
    summary = samples.summary if samples else None
    per_call_s: Sequence[float] = samples.per_call_s if samples else ()
    found = {
        f"{kind}_mean_ms": _ms(fmean(per_call_s) if per_call_s else None),
        f"{kind}_std_ms": _ms(pstdev(per_call_s) if per_call_s else None),
        f"{kind}_median_ms": _ms(summary.median_s if summary else None),
        f"{kind}_low_ms": _ms(summary.low_s if summary else None),
        f"{kind}_high_ms": _ms(summary.high_s if summary else None),
        f"{kind}_min_ms": _ms(summary.min_s if summary else None),
        f"{kind}_rounds": len(per_call_s) if per_call_s else asked,
    }
    if kind == "jit":
        found |= {
            "jit_loops": samples.iterations if samples else NONE,
            "timer": samples.timer if samples else "",
        }
    return found


def _compile_columns(m: Measurement | None) -> dict[str, Any]:
    return {
        "compile_ms": _ms(m.stages.build_s if m else None),
        "jit_peak_bytes": _bytes(m.memory.predicted_peak_bytes if m else None),
        "jit_constants_bytes": _bytes(m.memory.constant_bytes if m else None),
        "jit_temporary_bytes": _bytes(m.memory.temp_bytes if m else None),
    }


def _eager_peak(m: Measurement | None, argument_bytes: int) -> int:
    """Arguments and the observed rise above them, as in the compiler's plan of the jitted function."""
    rise = m.memory.eager_rise_bytes if m else None
    return NONE if rise is None else argument_bytes + rise


def _first_run(measured: StepResults) -> float:
    m = measured.jit or measured.eager
    return _ms(m.stages.first_run_s if m else None)


def _ms(seconds: float | None) -> float:
    return math.nan if seconds is None else seconds * 1e3


def _bytes(size: int | None) -> int:
    return NONE if size is None else size
