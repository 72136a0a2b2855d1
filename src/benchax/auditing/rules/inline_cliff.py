"""Finds small programs just beyond the size up to which XLA:CPU runs them on the calling thread.

With fewer than 1000 FLOP by XLA's own count, a program runs on the calling thread. With more, XLA hands it to a pool of
threads, and the hand-over can take longer than the work (jaxlib 0.10.2, measured with x + 1).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

from benchax.api import run
from benchax.auditing.evidence import SHORT, Evidence
from benchax.auditing.rule import Gain, NotApplicable, rule
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, percent, seconds

CLIFF_FLOPS = 1000
FAR_FLOPS = 1_000_000
"""With this much work the hand-over cannot matter."""
SHARE = 0.3
"""The share of the call's time that the hand-over must take."""


@rule("inline-cliff", "is it just too large to run on the calling thread?", "info")
def inline_cliff(e: Evidence) -> Iterable[Finding]:
    if e.platform != "cpu":
        raise NotApplicable(f"only XLA:CPU runs small programs on the calling thread; this is {e.platform}")
    cost = e.inspection.xla_cost
    if cost is None:
        raise NotMeasured(e.inspection.why_absent("xla_cost") or "XLA tells no FLOP count")
    flops = cost.flops or 0.0  # none told is none counted, by XLA as well
    if flops < CLIFF_FLOPS:
        return
    if flops > FAR_FLOPS:
        raise NotApplicable(f"its {count(flops, 'FLOP')} take longer than any hand-over")
    call_s = e.measurement.median_s
    # One element apart, so that nothing but the thread that runs it differs.
    inline, handed = _plus_one(CLIFF_FLOPS - 1), _plus_one(CLIFF_FLOPS)
    extra = handed - inline
    # A difference of two medians. Beside busy neighbours it came out longer than the call that it is a part of.
    share = extra / call_s
    if share > 1:
        longer = f"the hand-over took {seconds(extra)}, more than the call itself ({seconds(call_s)})"
        raise NotMeasured(f"{longer}: the machine is too busy to tell")
    if share < SHARE:
        return
    yield inline_cliff.finding(
        f"{count(flops, 'FLOP')} are dispatched to the thread pool, about {percent(share)} of the call",
        [
            f"a call takes {seconds(call_s)}",
            f"x + 1 of {CLIFF_FLOPS - 1} elements takes {seconds(inline)} here, of {CLIFF_FLOPS} {seconds(handed)}",
        ],
        "Put more into one call: vmap over several inputs, or jit what surrounds it. Splitting it does not help.",
        where=e.def_where,
        gain=Gain(f"estimated: up to {seconds(extra)} per call, were it part of a larger program", extra),
    )


@cache
def _plus_one(n: int) -> float:
    """Median time of a call of `x + 1`."""
    (row,) = run([make_case(_add, (f"f32[{n}]",), {}, name="plus one")], call={**SHORT, "memory": False})
    return row.median_s


def _add(x: Any) -> Any:
    return x + 1
