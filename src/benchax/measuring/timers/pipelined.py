"""Times n calls enqueued back to back and one wait for all their outputs: throughput.

Includes the dispatch of n calls as far as it is not hidden behind the work, and any overlap of the calls with one
another. Excludes transfers of the inputs, which `inputs.py` has finished before. Wrong when the calls depend on the
host in between. All n outputs are alive at once, which bounds n. A donating function gets its outputs back as its next
arguments where they fit (`base.Feedback`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns

import jax

from benchax.errors import NotMeasured
from benchax.measuring.timers.base import PreparedTimer, Subject, on_fresh_stack
from benchax.units import size

QUEUED_BYTES = 512 * 2**20
LEAST_CALLS = 8


def prepare(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` if 8 calls' outputs would not fit in 512 MiB."""
    per_call = subject.output_bytes + (subject.input_bytes if subject.donates else 0)
    most = QUEUED_BYTES // max(1, per_call)
    if most < LEAST_CALLS:
        raise NotMeasured(
            f"{LEAST_CALLS} queued calls would hold {size(LEAST_CALLS * per_call)} at once, more than "
            f"{size(QUEUED_BYTES)}"
        )
    # One call of each sample of a function that is fed its outputs is not timed.
    most = min(most, subject.feedback.most_calls - 1 if subject.feedback else 1000)
    return PreparedTimer(
        _in_a_row(subject),
        regime=subject.regime,
        least_iterations=min(LEAST_CALLS, most),
        most_iterations=most,
    )


def _in_a_row(subject: Subject) -> Callable[[int], int]:
    wait, is_fed_back = jax.block_until_ready, subject.feedback is not None

    @on_fresh_stack
    def sample(n: int) -> int:
        calls = subject.row(n)
        start = perf_counter_ns()
        outputs = [call() for call in calls]
        # Where outputs are fed back, those of earlier calls are donated, or there when the last ones are.
        wait(outputs[-1] if is_fed_back else outputs)
        return perf_counter_ns() - start

    return sample
