"""What the formats are tested with."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from measurement_strategies import RICH, measured

from benchax.model import CaseId, Comparison, Cost, Failure, Measurement, Memory, Samples, Version
from benchax.reporting.exports import FORMATS, entries

ODD = 'a, b; "c" |x| `y` <&>\nline 2\ttab\r\x00\x1b naïve 🦊'
SIX_S = (1.2e-4, 1.1e-4, 1.3e-4, 1.15e-4, 1.25e-4, 1.2e-4)

FULL = replace(
    RICH,
    case=CaseId("fft", (("n", 256), ("dtype", "f32")), tag="new"),
    failure=None,
    cost=Cost(flops=1.3e6),
    memory=replace(RICH.memory, devices=1),
)
"""Every number; times by wall (six samples) and loop."""
BARE = replace(measured("sum", elapsed_s=(2e-6,)), memory=Memory())
"""One sample: no interval. No compile time, no memory."""
FAILED = replace(
    measured("bad"), samples=(), failure=Failure("timeout", "compile", "over 3 s", "try less", "Trace\nback")
)
ROWS = (FULL, BARE, FAILED)

SLOWER = Comparison(
    FULL.case, "run", Version("v1"), Version("now"), "slower", ratio=1.2, low=1.1, high=1.3, baseline_value=1e-4,
    candidate_value=1.2e-4, confirmed=True,
)  # fmt: skip


def text(format: str, rows: tuple[Measurement, ...] = ROWS, comparisons=(), timer: str | None = None) -> str:
    return FORMATS[format](entries(rows, comparisons, timer))


def document(format: str, rows: tuple[Measurement, ...] = ROWS, comparisons=(), timer: str | None = None) -> Any:
    """Read as the strictest readers do."""
    return json.loads(text(format, rows, comparisons, timer), parse_constant=_refuse)


def _refuse(token: str) -> None:
    raise AssertionError(f"{token} is not JSON")


def named(name: str) -> Measurement:
    """Timed, and called so."""
    return replace(measured(), case=CaseId(name), samples=(Samples("wall", 1, SIX_S),))
