"""Finds a function that runs operation by operation, though compiled as a whole it would be faster."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, measured_gain, require_decided, rule
from benchax.comparing.break_even import break_even, of_comparison
from benchax.results.audit import Finding

WORTH_ASKING = 1.1
"""Only where the medians are this far apart is a comparison made."""
FEW_CALLS = 1000
"""What pays only later is a hint: most programs call few functions as often."""


@rule("not-jitted", "is it compiled as a whole?", "warning")
def not_jitted(e: Evidence) -> Iterable[Finding]:
    if e.is_jitted:
        raise NotApplicable("it is jitted")
    rows = break_even(e.eager, e.measurement)
    # The two medians are of different moments: enough to ask by, since a comparison takes 5 to 20 s, not to say by.
    if rows.speedup < WORTH_ASKING:
        return
    c = require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit")
    gain, pays = measured_gain(c), of_comparison(rows.build_s, c)
    # What pays later than `trivial-jit` allows is no advice to jit: the two rules never contradict one another.
    if gain is None or pays is None or not pays.pays_soon:
        return
    seen = [str(pays)]
    if e.inspection.jaxpr is not None and not pays.is_same_program:
        seen.append(f"{e.inspection.jaxpr.equations} operations, sent to the device one by one")
    yield not_jitted.finding(
        "starts its one operation from Python" if pays.is_same_program else "runs operation by operation",
        seen,
        pays.advice,
        where=e.def_where,
        gain=gain,
        severity="info" if pays.calls is None or pays.calls > FEW_CALLS else None,
    )
