"""Finds a jitted function so small that compiling it hardly ever pays."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, measured_gain, require_decided, rule
from benchax.comparing.break_even import break_even, of_comparison
from benchax.errors import NotMeasured
from benchax.results.audit import Finding


@rule("trivial-jit", "does compiling it pay?", "info")
def trivial_jit(e: Evidence) -> Iterable[Finding]:
    if not e.is_jitted:
        raise NotApplicable("it is not jitted")
    rows = break_even(e.eager, e.measurement)
    # By the end of the interval that speaks for compiling.
    if rows.pays_soon:
        return
    # The two medians are of different moments; only pairs can say that so little is saved, or nothing.
    c = require_decided(e.compare("no jit", e.eager_case), "the eager function")
    pays = of_comparison(rows.build_s, c, is_eager_baseline=False)
    if pays is None:
        raise NotMeasured("the comparison with the eager function has no interval")
    if pays.pays_soon:
        return
    yield trivial_jit.finding(
        f"compiling pays from {pays.low:,} calls on at best" if pays.low else "compiling never pays",
        [str(pays)],
        pays.advice,
        where=e.def_where,
        gain=measured_gain(c),
    )
