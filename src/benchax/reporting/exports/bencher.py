"""Bencher Metric Format (BMF): {benchmark: {measure: {value, lower_value, upper_value}}}.

`latency` (nanoseconds) and `build-time` (seconds) are measures that Bencher has by itself; the others are made at first
use. Intervals go into lower_value and upper_value. A case without any number is left out: BMF cannot say why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from benchax.reporting.exports.entries import ExportedCase, drop_unknown, nanoseconds, strict_json

LONGEST_NAME = 1024
"""Bytes; Bencher refuses the whole report for a longer one (bencher_valid/src/benchmark_name.rs)."""


def text(found: Sequence[ExportedCase]) -> str:
    report = {name(entry.label): measures for entry in found if (measures := _measures(entry))}
    return strict_json(report)


def name(label: str) -> str:
    """At most LONGEST_NAME bytes; a longer one is cut, and a digest of the whole keeps it apart from others."""
    raw = label.encode()
    if len(raw) <= LONGEST_NAME:
        return label
    digest = f"… ~{hashlib.sha256(raw).hexdigest()[:12]}"
    # A letter that the cut went through is dropped.
    return raw[: LONGEST_NAME - len(digest.encode())].decode(errors="ignore") + digest


def _measures(entry: ExportedCase) -> dict[str, Any]:
    measures: dict[str, Any] = {}
    if s := entry.summary:
        bounds = {"lower_value": s.low_s, "upper_value": s.high_s}
        measures["latency"] = {k: nanoseconds(v) for k, v in drop_unknown({"value": s.median_s} | bounds).items()}
    if entry.compile_s is not None:
        measures["build-time"] = {"value": entry.compile_s}
    for what, value in (entry.rates | entry.counted).items():
        measures[what.replace("_", "-")] = {"value": value}
    return measures
