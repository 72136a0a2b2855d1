"""Finds a function that runs operation by operation, though compiled as a whole it would be faster."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, measured_gain, require_decided, rule
from benchax.comparing.break_even import break_even, of_comparison
from benchax.results.audit import Finding

WORTH_ASKING = 1.1
"""Only where the medians are this far apart is a comparison made."""


@rule("not-jitted", "is it compiled as a whole?", "warning")
def not_jitted(e: Evidence) -> Iterable[Finding]:
    if e.is_jitted:
        raise NotApplicable("it is jitted")
    pays = break_even(e.eager, e.measurement)
    # The two medians are of different moments: enough to ask by, since a comparison takes 5 to 20 s, not to say by.
    if pays.speedup < WORTH_ASKING:
        return
    c = require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit")
    gain = measured_gain(c)
    if gain is None:
        return
    seen = [str(of_comparison(pays.build_s, c) or pays)]
    if e.inspection.jaxpr is not None:
        seen.append(f"{e.inspection.jaxpr.equations} operations, sent to the device one by one")
    yield not_jitted.finding(
        "runs operation by operation",
        seen,
        "Decorate it with jax.jit. Where only jitted functions call it, nothing is to be done.",
        where=e.def_where,
        gain=gain,
    )
