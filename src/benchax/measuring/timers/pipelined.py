"""Times n calls enqueued back to back and one wait for all their outputs: throughput.

Includes the dispatch of n calls as far as it is not hidden behind the work, and any overlap of the calls with one
another. Excludes transfers of the inputs, which `inputs.py` has finished before. Wrong when the calls depend on the
host in between. All n outputs are alive at once, which bounds n. A donating function gets its outputs back as its next
arguments where they fit (`base.Feedback`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns

import jax

from benchax.errors import NotMeasured
from benchax.measuring.timers.base import Feedback, PreparedTimer, Subject, on_fresh_stack
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
    sample = _in_a_row(subject)
    most, feedback = min(most, 1000), subject.feedback
    if feedback:
        # One call of each sample is not timed.
        sample, most = _fed_back(feedback), min(most, feedback.most_calls - 1)
    return PreparedTimer(
        on_fresh_stack(sample),
        regime=subject.regime,
        least_iterations=min(LEAST_CALLS, most),
        most_iterations=most,
    )


def _in_a_row(subject: Subject) -> Callable[[int], int]:
    wait = jax.block_until_ready

    def sample(n: int) -> int:
        calls = subject.row(n)
        start = perf_counter_ns()
        outputs = [call() for call in calls]
        wait(outputs)
        return perf_counter_ns() - start

    return sample


def _fed_back(feedback: Feedback) -> Callable[[int], int]:
    wait = jax.block_until_ready

    def sample(n: int) -> int:
        outputs = wait((feed := feedback.start())())  # on copies that no cache holds
        start = perf_counter_ns()
        for _ in repeat(None, n):
            outputs = feed()
        wait(outputs)  # those of the calls before are donated, or there when these are
        return perf_counter_ns() - start

    return sample
