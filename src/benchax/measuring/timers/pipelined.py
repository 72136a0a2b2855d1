"""Times n calls enqueued back to back and one wait for all their outputs: throughput.

Includes the dispatch of n calls as far as it is not hidden behind the work, and any overlap of the calls with one
another. Excludes transfers of the inputs, which `inputs.py` has finished before. Wrong when the calls depend on the
host in between. All n outputs are alive at once, which bounds n.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from time import perf_counter_ns

import jax

from benchax.errors import NotMeasured
from benchax.measuring.fresh_stack import sample_on_fresh_stack
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.units import size

QUEUED_BYTES = 512 * 2**20
LEAST_CALLS = 8


class PipelinedTimer:
    name = "pipelined"
    answers = "calls queued, one wait at the end"

    def prepare(self, subject: Subject) -> PreparedTimer:
        """Raises `NotMeasured` where 8 calls' outputs would not fit in 512 MiB."""
        per_call = subject.output_bytes + (subject.input_bytes if subject.donates else 0)
        most = QUEUED_BYTES // max(1, per_call)
        if most < LEAST_CALLS:
            raise NotMeasured(
                f"{LEAST_CALLS} queued calls would hold {size(LEAST_CALLS * per_call)} at once, more than "
                f"{size(QUEUED_BYTES)}"
            )
        call, wait = subject.program.call, jax.block_until_ready

        def stateful(n: int) -> int:
            calls = [subject.ready() for _ in range(n)]
            start = perf_counter_ns()
            outputs = [call() for call in calls]
            wait(outputs)
            return perf_counter_ns() - start

        def sample(n: int) -> int:
            calls = subject.calls(n)
            start = perf_counter_ns()
            outputs = [call(*args, **kwargs) for args, kwargs in calls]
            wait(outputs)
            return perf_counter_ns() - start

        sample = stateful if subject.inputs.is_stateful else sample
        return PreparedTimer(
            sample_on_fresh_stack(sample), least_iterations=LEAST_CALLS, most_iterations=min(most, 1000)
        )
