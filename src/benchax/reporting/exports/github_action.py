"""For github-action-benchmark with `tool: customSmallerIsBetter`: an array of {name, value, unit, range, extra}.

One entry per case and metric. Units never change with the size of a number, since the action plots values as they are.
Cases without a number are left out: the action takes no entry without a value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from benchax.reporting.exports.entries import ExportedCase, nanoseconds, strict_json
from benchax.units import seconds_range

COUNTED = {
    "observed_peak_bytes": ("peak memory", "B"),
    "predicted_peak_bytes": ("planned peak", "B"),
    "constant_bytes": ("constants", "B"),
    "flops": ("operations", "FLOP"),
}
"""In words, and the unit."""


def text(found: Sequence[ExportedCase]) -> str:
    return strict_json([each for entry in found for each in _metrics(entry)])


def _metrics(entry: ExportedCase) -> Iterator[dict[str, Any]]:
    if s := entry.summary:
        # Not "± x": the interval is not symmetric, and the action would scale x alone when units change.
        has_interval = s.low_s is not None and s.high_s is not None
        interval = {"range": f"95 %: {seconds_range(s.low_s or 0, s.high_s or 0)}"} if has_interval else {}
        yield {"name": entry.label, "value": nanoseconds(s.median_s), "unit": "ns", **interval, "extra": _extra(entry)}
    if entry.compile_s is not None:
        yield {"name": f"{entry.label} · compile", "value": round(1e3 * entry.compile_s, 6), "unit": "ms"}
    for what, value in entry.counted.items():
        words, unit = COUNTED[what]
        yield {"name": f"{entry.label} · {words}", "value": value, "unit": unit}


def _extra(entry: ExportedCase) -> str:
    env = entry.m.environment
    where = [env.device_kind if env.backend != "cpu" else env.processor, f"jax {env.jax}" if env.jax else ""]
    return "\n".join([entry.detail, *(part for part in where if part)])
