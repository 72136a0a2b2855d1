"""Evidence whose times are given and not measured, for tests of what rules make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from comparisons_by_hand import compared
from measurement_strategies import RICH

from benchax.auditing.evidence import Evidence
from benchax.case import make_case
from benchax.model import Comparison, Measurement, Samples, Stages


def evidence(
    fn: Callable[..., Any],
    *args: Any,
    eager_s: float,
    jitted_s: float,
    build_s: float = 0.1,
    comparison: Comparison | None = None,
) -> Evidence:
    """Of a function that takes so long; `comparison` is the answer to every one that is asked for, None: an error."""
    e = Evidence(make_case(fn, args))
    rows = {"eager": measured(eager_s), "measurement": measured(jitted_s, build_s)}
    e._parts.update(rows, failure=None)

    def compare(*asked: object) -> Comparison:
        assert comparison is not None, "no comparison is needed here"
        return comparison

    e.compare = compare
    return e


def measured(per_call_s: float, build_s: float | None = None) -> Measurement:
    stages = Stages() if build_s is None else Stages(trace_s=0.0, lower_s=0.0, compile_s=build_s)
    wall = Samples("wall", 1, tuple(per_call_s * (1 + i / 1e4) for i in range(20)))
    return replace(RICH, failure=None, stages=stages, samples=(wall,))


def judged(ratio: float, **changed: Any) -> Comparison:
    """A candidate that takes `ratio` times as long, ± 1 %."""
    return compared(0, ratio, **changed)
