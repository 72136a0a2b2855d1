"""Times single calls, each followed by a wait for its whole output tree: the latency that a caller sees.

It includes argument handling, dispatch, the hand-over to XLA's thread pool, the work, output allocation, and the
wait. (XLA:CPU runs programs under 1000 flops inline and hands others over, 20 to 100 µs.) It excludes transfers of the
inputs, which `inputs.py` has finished. It also excludes the copies that renew donated buffers if outputs cannot be fed
back (`base.Feedback`). It is wrong for work far below the cost of a call (about 8 µs): there it shows the call.

In a row of calls, XLA's thread is awake for some and asleep for others. It takes about 45 µs to wake: calls of one
function take 14 or 57 µs. A sample shows their mean, as a loop over calls does.

Some calls change their arguments (`measuring/state.py`), or their author makes new arguments each time. Each such call
has its own arguments, made before it and released after it, so that each is a separate interval. The timer also waits
for the arrays that the call puts into its arguments.

There are no Python frames above the calls (`measuring/timers/base.py`), because each frame makes JAX slower.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from time import perf_counter_ns

import jax

from benchax.measuring.timers.base import PreparedTimer, Subject, on_fresh_stack

RENEWED_BYTES = 256 * 2**20


def prepare(subject: Subject) -> PreparedTimer:
    if subject.regime is None:  # it donates none of the shared inputs
        return prepare_alone(subject)
    most = min(RENEWED_BYTES // max(1, subject.input_bytes), 1000)
    if subject.feedback:
        most = subject.feedback.most_calls - 1  # one call of each sample is not timed
    return PreparedTimer(_donating(subject), regime=subject.regime, most_iterations=max(1, most))


def prepare_alone(subject: Subject) -> PreparedTimer:
    """For readings of single calls, each with fresh copies of the arguments that it donates."""
    return PreparedTimer(_one_by_one(subject) if subject.needs_renewal else _plain(subject))


def _plain(subject: Subject) -> Callable[[int], int]:
    call, args, kwargs = subject.program.call, subject.inputs.args, subject.inputs.kwargs
    is_array = isinstance(subject.outputs, jax.Array)
    wait = jax.block_until_ready

    # One plain loop per form of call. An array's method is 2 to 3 µs cheaper than jax.block_until_ready, and is what
    # callers with one output write.
    def array_out(n: int) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            call(*args).block_until_ready()
        return perf_counter_ns() - start

    def tree_out(n: int) -> int:
        start = perf_counter_ns()
        for _ in repeat(None, n):
            wait(call(*args, **kwargs))
        return perf_counter_ns() - start

    return on_fresh_stack(array_out if is_array and not kwargs else tree_out)


def _one_by_one(subject: Subject) -> Callable[[int], int]:
    wait = jax.block_until_ready

    @on_fresh_stack
    def sample(n: int) -> int:
        elapsed = 0
        for _ in repeat(None, n):
            # Keep the name bound until the next call is ready, so that nothing is freed inside an interval.
            call = subject.ready()
            start = perf_counter_ns()
            wait(call())
            elapsed += perf_counter_ns() - start
        return elapsed

    return sample


def _donating(subject: Subject) -> Callable[[int], int]:
    wait = jax.block_until_ready

    @on_fresh_stack
    def sample(n: int) -> int:
        # All copies of inputs are made before the clock starts. `most_iterations` ensures that they fit into memory.
        calls = subject.row(n)
        start = perf_counter_ns()
        for call in calls:
            wait(call())
        return perf_counter_ns() - start

    return sample
