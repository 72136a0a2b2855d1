"""Times the slope between two trip counts of one compiled loop around the function: its cost inside a bigger program.

The arguments are carried through an `optimization_barrier` together with the outputs. So each trip depends on the one
before, and XLA can neither hoist the body nor delete it. (A barrier around invariant arguments does not stop it: 0.02
of the true time was read.) The trip count is an operand: one executable serves all counts, and the loop's fixed costs
cancel in the difference. Excludes dispatch, the thread hand-over and output allocation. Two regimes:

    thunks         each trip runs the body's thunks (85 to 390 ns a trip on CPU, included)
    single kernel  XLA:CPU made one machine function of loop and body (carry up to about 256 bytes; since jax 0.12 any
                   loop of simple operations). The barrier is gone by then, so a second form is used whose arguments
                   depend on the previous outputs by data. One thread runs it, so a function that
                   XLA would share among threads is refused: sin of 2^20 numbers kept 1.00 cores busy in a loop, 1.47
                   by itself (two cores, jax 0.12.0.1).

For each case, `embedding.py` proves that the loop does all of the function's work in each trip. A single difference
contains every preemption.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchax.errors import NotMeasured
from benchax.measuring.program import as_reason
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.measuring.timers.embedding import (
    Embedded,
    Leaves,
    Proven,
    Run,
    compile_proven,
    embed,
    feed,
    zeros_like_outputs,
)
from benchax.program.census import counted_body
from benchax.program.hlo import has_small_call, is_shared_among_threads
from benchax.static_leaves import is_key, like

MOST_ITERATIONS = 1_000_000
_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def prepare(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` with the reason if no such loop can be built."""
    function = embed(subject, MOST_ITERATIONS)
    leaves = function.leaves
    proven = _compiled(subject, function, is_tied=False)
    regime = "thunks" if jax.default_backend() == "cpu" else "kernels"
    # Only the compiled program shows it: XLA decides by the size of the loop and its carry, by different rules in each
    # version.
    if has_small_call(proven.text):
        _check_single_kernel(leaves, zeros_like_outputs(function.body, leaves), subject)
        proven, regime = _compiled(subject, function, is_tied=True), "single kernel"
    # The longer of the two loops in a sample has 1.5 times as many iterations.
    most = max(2, function.most_calls * 2 // 3)
    return PreparedTimer(
        _slope(proven.call, leaves),
        regime=regime,
        census=proven.census,
        least_iterations=2,
        most_iterations=most,
        length=7.0,
    )


def _loop(function: Embedded, run: Run, is_tied: bool) -> Callable[..., Any]:
    """(trips, zero, *leaves) -> the outputs of the last trip.

    Args:
        is_tied: the trips depend on each other by data, which survives inside one machine function. One element of each
            argument is XOR-ed with bits of the previous output, masked by a run-time zero. The values do not change,
            but no compiler can know that.
    """

    def loop(trips: Any, zero: Any, *leaves: Any) -> Any:
        def trip(_: Any, carry: Any) -> Any:
            values, outputs = carry
            if is_tied:
                token = _bits((outputs or [values[i] for i in function.fed])[0]) & zero
                values = [value if i in function.fed else _touch(value, token) for i, value in enumerate(values)]
            outputs = run(function.body, values, zero)
            return lax.optimization_barrier((feed(function.fed, values, outputs), unfed(outputs)))

        first = unfed(zeros_like_outputs(function.body, list(leaves)))
        values, outputs = lax.fori_loop(0, trips, trip, (list(leaves), first))
        return outputs, [values[i] for i in function.fed]

    def unfed(outputs: Leaves) -> Leaves:
        return [output for i, output in enumerate(outputs) if i not in function.fed.values()]

    return loop


def _bits(value: Any) -> Any:
    first = value.ravel()[0] if value.ndim else value
    if first.dtype == jnp.bool_:
        return first.astype(jnp.uint32)
    return lax.bitcast_convert_type(first, _UNSIGNED[first.dtype.itemsize]).astype(jnp.uint32)


def _touch(value: Any, token: Any) -> Any:
    value = jnp.asarray(value)
    if is_key(value):
        return like(value, _touch(jax.random.key_data(value), token))
    if not value.ndim:
        return _xor(value, token)
    start, one = (0,) * value.ndim, (1,) * value.ndim
    return lax.dynamic_update_slice(value, _xor(lax.slice(value, start, one), token), start)


def _xor(value: Any, token: Any) -> Any:
    if value.dtype == jnp.bool_:
        return value ^ (token != 0)
    if value.weak_type:  # bits would make it a strong type, and change what the function computes: bf16 * 2.5 is bf16
        return jnp.where(token != 0, value * 2, value)
    unsigned = _UNSIGNED[value.dtype.itemsize]
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, unsigned) ^ token.astype(unsigned), value.dtype)


def _check_single_kernel(leaves: Leaves, outputs: Leaves, subject: Subject) -> None:
    """Complex numbers and empty arrays have no bits to tie one trip to the next with."""
    if is_shared_among_threads(subject.hlo):
        raise NotMeasured(
            "XLA makes one machine function of the loop around it, for one thread, and shares the function itself "
            "among several"
        )
    tied = [*map(jnp.asarray, leaves), *outputs[:1]]
    for value in tied:
        if jnp.issubdtype(value.dtype, jnp.complexfloating) or not value.size:
            raise NotMeasured(
                f"XLA makes one machine function of this small loop, and {value.dtype}{list(value.shape)} gives it "
                "nothing to tie one trip to the next"
            )


def _compiled(subject: Subject, function: Embedded, is_tied: bool) -> Proven:
    """The loop, run once. Whatever does not trace or compile inside a loop is a reason, not a crash."""
    with as_reason("it cannot run inside a compiled loop"):
        # Trip count and zero are operands, not constants: XLA may unroll a known count, and would fold a known zero.
        numbers = jnp.int32(1), jnp.uint32(0)
        proven = compile_proven(lambda run: _loop(function, run, is_tied), counted_body, numbers, function, subject)
        jax.block_until_ready(proven.call(*numbers, *function.leaves))
        return proven


def _slope(run: Callable[..., Any], leaves: Leaves) -> Callable[[int], int]:
    wait, zero = jax.block_until_ready, jnp.uint32(0)

    def sample(n: int) -> int:
        few, many = jnp.int32(n // 2), jnp.int32(n // 2 + n)
        # Put them on the device before the clock starts, or the first of the two calls would include the transfer.
        wait((few, many))
        start = perf_counter_ns()
        wait(run(few, zero, *leaves))
        between = perf_counter_ns()
        wait(run(many, zero, *leaves))
        return perf_counter_ns() - between - (between - start)

    return sample
