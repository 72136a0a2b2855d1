"""CSV (RFC 4180, UTF-8, a header): one line per case, times in seconds per call. An empty field was not measured;
the column `why` then says why it has no times. Behind the others there is a column for each kind of work that any case
does: tokens_per_s."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from typing import Any

from benchax.reporting.exports.entries import ExportedCase, plain

COLUMNS: tuple[str, ...] = (
    "name", "params", "variant", "tag", "run_id", "started_at", "commit", "is_dirty", "host", "backend",
    "device_kind", "jax", "fingerprint", "signature", "status", "timer", "n", "iterations", "median_s", "low_s",
    "high_s", "mean_s", "std_s", "min_s", "max_s", "compile_s", "observed_peak_bytes", "predicted_peak_bytes",
    "constant_bytes", "flops", "baseline", "verdict", "ratio", "ratio_low", "ratio_high", "why",
    "devices", "is_fake", "ranks",
)  # fmt: skip


def text(found: Sequence[ExportedCase]) -> str:
    target = io.StringIO()
    rates = dict.fromkeys(name for entry in found for name in entry.rates if name not in COLUMNS)
    writer = csv.DictWriter(target, (*COLUMNS, *rates), restval="", lineterminator="\r\n")
    writer.writeheader()
    for entry in found:
        writer.writerow({name: _field(value) for name, value in record(entry).items()})
    return target.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    # By repr, with all digits: who reads it again has the same float.
    return "" if value is None else repr(value) if isinstance(value, float) else value


def record(entry: ExportedCase) -> dict[str, Any]:
    """The fields of one line; None was not measured."""
    return entry.rates | _identity(entry) | _numbers(entry) | _comparison(entry) | {"why": entry.why}


def _identity(entry: ExportedCase) -> dict[str, Any]:
    m, env = entry.m, entry.m.environment
    params = {key: plain(value) for key, value in m.case.params}
    return {
        "name": m.case.name,
        "params": json.dumps(params, ensure_ascii=False, allow_nan=False) if params else None,
        "variant": m.case.variant,
        "tag": m.case.tag,
        "run_id": m.run_id,
        "started_at": m.started_at,
        "commit": env.commit,
        "is_dirty": env.is_dirty,
        "host": env.host,
        "backend": env.backend,
        "device_kind": env.device_kind,
        "jax": env.jax,
        "fingerprint": env.fingerprint,
        "signature": m.signature,
        "status": m.failure.kind if m.failure else "ok",
        "devices": m.devices.count if m.devices else None,
        "is_fake": m.devices.is_fake if m.devices else None,
        "ranks": len(m.ranks.ranks) if m.ranks else None,
    }


def _numbers(entry: ExportedCase) -> dict[str, Any]:
    found: dict[str, Any] = {"compile_s": entry.compile_s} | entry.counted
    if entry.samples and (s := entry.summary):
        found |= {"timer": entry.samples.timer, "n": s.n, "iterations": entry.samples.iterations}
        found |= {"median_s": s.median_s, "low_s": s.low_s, "high_s": s.high_s}
        found |= {"mean_s": s.mean_s, "std_s": s.std_s, "min_s": s.min_s, "max_s": s.max_s}
    return found


def _comparison(entry: ExportedCase) -> dict[str, Any]:
    """The comparison of run times."""
    c = entry.run
    if c is None:
        return {}
    ends = {"ratio": c.ratio, "ratio_low": c.low, "ratio_high": c.high}
    return {"baseline": c.baseline.label, "verdict": c.verdict} | ends
