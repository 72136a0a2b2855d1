"""Makes the remarks on the numbers: facts that a reader must know before believing or quoting them.

Each rule looks at the evidence of one measurement and says one thing or nothing. A new one is one function, in
`of_functions.py`, `of_times.py` or `of_calls.py`, and a line in RULES. Codes are stable. Each states measured facts,
and never guesses about the user's code.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from benchax.measuring.remarks import of_calls, of_functions, of_times
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.model import Measurement, Remark, Severity

RULES: tuple[Callable[[RowEvidence], Remark | None], ...] = (
    of_functions.wrong_result,
    of_functions.not_verified,
    of_functions.nonfinite_result,
    of_functions.no_outputs,
    of_functions.host_callbacks,
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
    of_times.inline_limit,
    of_times.page_faults,
    of_functions.donation_unused,
    of_times.loops_counted_once,
    of_times.busy,
    of_times.coarse_clock,
    of_times.uneven_calls,
    of_times.fresh_copies,
)


def remarks(evidence: RowEvidence) -> tuple[Remark, ...]:
    """All that apply, errors first."""
    return _sort([*(rule(evidence) for rule in RULES), *of_calls.compare(evidence.times)])


def renew(m: Measurement) -> Measurement:
    """The row with the remarks that compare its times made again: further processes have changed the times."""
    times = of_calls.times_of(m)
    redundant = of_calls.CODES + (("inline-limit",) if of_calls.call_overhead(times) else ())
    kept = (remark for remark in m.remarks if remark.code not in redundant)
    return replace(m, remarks=_sort([*kept, *of_calls.compare(times)]))


def _sort(found: Iterable[Remark | None]) -> tuple[Remark, ...]:
    order: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
    return tuple(sorted((remark for remark in found if remark), key=lambda remark: order[remark.severity]))
