"""Evidence whose times are given and not measured, for tests of what rules make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from comparisons_by_hand import compared
from measurement_strategies import RICH

from benchax.auditing.evidence import Evidence
from benchax.case import Case, make_case
from benchax.model import Comparison, Measurement, Samples, Stages


class ScriptedEvidence:
    """Evidence of which some parts are given; the others are those of a live one. Keeps what was to be compared."""

    def __init__(self, live: Evidence, *, compare: Callable[[str], Comparison] | None = None, **parts: Any) -> None:
        vars(self).update(parts)
        self._live, self._compare = live, compare
        self.pairs: list[tuple[Case, Case]] = []
        """(as it is, variant) of each comparison that was requested."""

    def __getattr__(self, part: str) -> Any:
        return getattr(self._live, part)

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        self.pairs.append((baseline or self._live.case, variant))
        return self._compare(name) if self._compare else self._live.compare(name, variant, baseline)


def evidence(
    fn: Callable[..., Any],
    *args: Any,
    eager_s: float,
    jitted_s: float,
    build_s: float = 0.1,
    comparison: Comparison | None = None,
) -> ScriptedEvidence:
    """Of a function that takes so long; `comparison` is the answer to every one that is asked for, None: there is no
    time for any."""
    return ScriptedEvidence(
        Evidence(make_case(fn, args), max_time_s=0.0),
        compare=None if comparison is None else lambda name: comparison,
        eager=measured(eager_s),
        measurement=measured(jitted_s, build_s),
        failure=None,
    )


def measured(per_call_s: float, build_s: float | None = None) -> Measurement:
    stages = Stages() if build_s is None else Stages(trace_s=0.0, lower_s=0.0, compile_s=build_s)
    wall = Samples("wall", 1, tuple(per_call_s * (1 + i / 1e4) for i in range(20)))
    return replace(RICH, failure=None, stages=stages, samples=(wall,))


def judged(ratio: float, **changed: Any) -> Comparison:
    """A candidate that takes `ratio` times as long, ± 1 %."""
    return compared(0, ratio, **changed)
