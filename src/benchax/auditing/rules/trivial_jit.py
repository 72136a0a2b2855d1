"""Finds a jitted function so small that compiling it hardly ever pays."""

from __future__ import annotations

import math
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, measured_gain, require_decided, rule
from benchax.comparing.break_even import break_even, of_comparison
from benchax.errors import NotMeasured
from benchax.model import Comparison
from benchax.results.audit import Finding

MANY_CALLS = 10_000
"""Whoever calls it less often loses by compiling, is what a finding says."""


@rule("trivial-jit", "does compiling it pay?", "info")
def trivial_jit(e: Evidence) -> Iterable[Finding]:
    if not e.is_jitted:
        raise NotApplicable("it is not jitted")
    pays = break_even(e.eager, e.measurement)
    # By the end of the interval that speaks for compiling.
    if pays.low is not None and pays.low <= MANY_CALLS:
        return
    # The two medians are of different moments; only pairs can say that so little is saved, or nothing.
    c = require_decided(e.compare("no jit", e.eager_case), "the eager function")
    calls = fewest_calls(pays.build_s, c)
    if calls is not None and calls <= MANY_CALLS:
        return
    yield trivial_jit.finding(
        f"compiling pays from {calls:,} calls on at best" if calls else "compiling never pays",
        [str(of_comparison(pays.build_s, c, is_eager_baseline=False) or pays)],
        "Leave jax.jit away, or jit the function that calls this one: a jit within a jit costs nothing.",
        where=e.def_where,
        gain=measured_gain(c),
    )


def fewest_calls(build_s: float, c: Comparison) -> int | None:
    """Until compiling pays, by the end of the interval that speaks for it; None: never.

    Args:
        c: of the eager function against the jitted one.
    """
    if c.baseline_value is None or c.high is None:
        raise NotMeasured("the comparison with the eager function has no interval")
    saved_s = c.baseline_value * (c.high - 1)
    return math.ceil(build_s / saved_s) if saved_s > 0 else None
