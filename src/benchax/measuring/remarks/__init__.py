"""The sentences that belong beside the numbers: what a reader must know before believing or quoting them.

Each rule looks at the evidence of one measurement and says one thing or nothing. A new one is one function, in
`of_functions.py` or `of_times.py`, and a line in RULES. Codes are stable. What each says is measured, never a guess
about the user's code.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable

from benchax.measuring.remarks import of_functions, of_times
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.model import Remark, Severity

RULES: tuple[Callable[[RowEvidence], Remark | None], ...] = (
    of_functions.wrong_result,
    of_functions.not_verified,
    of_functions.fake_devices,
    of_times.recompiled,
    of_times.not_steady,
    of_functions.numpy_inputs,
    of_functions.narrowed,
    of_functions.no_inputs,
    of_functions.folded,
    of_functions.not_jitted,
    of_functions.impure,
    of_functions.reads_clock,
    of_functions.changed_by_tracing,
    of_functions.stateful,
    of_functions.state_dropped,
    of_functions.undetermined_state,
    of_times.dispatch_bound,
    of_times.resident_far_below_wall,
    of_times.more_than_a_call,
    of_times.one_at_a_time,
    of_times.inline_limit,
    of_times.page_faults,
    of_functions.donation_unused,
    of_times.loops_counted_once,
    of_times.busy,
    of_times.coarse_clock,
    of_times.timers_apart,
    of_times.uneven_calls,
    of_times.fresh_copies,
    of_times.no_interval,
)


def remarks(evidence: RowEvidence) -> tuple[Remark, ...]:
    """All that apply, errors first."""
    found = [remark for rule in RULES if (remark := rule(evidence))]
    order: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted(found, key=lambda remark: order[remark.severity]))
