"""Times the slope between two trip counts of one compiled loop around the function: its cost inside a bigger program.

The arguments are carried through an `optimization_barrier` together with the outputs, so that each trip depends on
the one before and XLA can neither hoist the body nor delete it (a barrier around invariant arguments does not stop
it: facts measured 0.02 of the true time). The trip count is an operand: one executable serves all counts, and the
loop's fixed costs cancel in the difference. Excludes dispatch, the thread hand-over and output allocation. Two regimes:

    thunks         each trip runs the body's thunks (85 to 390 ns a trip on CPU, included)
    single kernel  XLA:CPU made one machine function of loop and body (carry up to about 256 bytes). The barrier is
                   gone by then, so a second form is used whose arguments depend on the previous outputs by data.

Wrong for programs whose constant part XLA does not fold but hoists. A single difference contains every preemption.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchax.artifacts.hlo import has_small_call
from benchax.errors import NotMeasured
from benchax.measuring.timers.base import Prepared, Subject
from benchax.measuring.timers.embedding import Body, Leaves, embedded

_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


class Loop:
    name = "loop"
    answers = "cost inside a bigger program"

    def prepare(self, subject: Subject) -> Prepared:
        """Raises `NotMeasured` with the reason where no such loop can be built."""
        body, leaves = embedded(subject)
        run, text = _compiled(_barrier_loop(body), leaves)
        if not has_small_call(text):
            return Prepared(_slope(run, leaves), regime=_regime(), least_iterations=2, length=7.0)
        _check_tiny(leaves, subject.outputs)
        zero = jnp.uint32(0)
        run, _ = _compiled(_data_loop(body), [zero, *leaves])
        return Prepared(_slope(run, [zero, *leaves]), regime="single kernel", least_iterations=2, length=7.0)


def _regime() -> str:
    return "thunks" if jax.default_backend() == "cpu" else "kernels"


def _barrier_loop(body: Body) -> Callable[..., Any]:
    def loop(trips: Any, *leaves: Any) -> Any:
        def trip(_: Any, carry: Any) -> Any:
            return lax.optimization_barrier((carry[0], body(carry[0])))

        return lax.fori_loop(0, trips, trip, (list(leaves), _zeros(body, leaves)))[1]

    return loop


def _data_loop(body: Body) -> Callable[..., Any]:
    """The same with a dependency that survives inside one machine function.

    One element of each argument is XOR-ed with bits of the previous output that a run-time zero has masked: the
    values do not change, but no compiler can know.
    """

    def loop(trips: Any, zero: Any, *leaves: Any) -> Any:
        def trip(_: Any, carry: Any) -> Any:
            values, outputs = carry
            token = _bits(jax.tree.leaves(outputs)[0]) & zero
            values = [_touch(value, token) for value in values]
            return lax.optimization_barrier((values, body(values)))

        return lax.fori_loop(0, trips, trip, (list(leaves), _zeros(body, leaves)))[1]

    return loop


def _zeros(body: Body, leaves: Any) -> Any:
    shapes = jax.eval_shape(body, list(leaves))
    return jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


def _bits(value: Any) -> Any:
    first = value.ravel()[0] if value.ndim else value
    if first.dtype == jnp.bool_:
        return first.astype(jnp.uint32)
    return lax.bitcast_convert_type(first, _UNSIGNED[first.dtype.itemsize]).astype(jnp.uint32)


def _touch(value: Any, token: Any) -> Any:
    value = jnp.asarray(value)
    if not value.ndim:
        return _xor(value, token)
    start, one = (0,) * value.ndim, (1,) * value.ndim
    return lax.dynamic_update_slice(value, _xor(lax.slice(value, start, one), token), start)


def _xor(value: Any, token: Any) -> Any:
    if value.dtype == jnp.bool_:
        return value ^ (token != 0)
    unsigned = _UNSIGNED[value.dtype.itemsize]
    return lax.bitcast_convert_type(lax.bitcast_convert_type(value, unsigned) ^ token.astype(unsigned), value.dtype)


def _check_tiny(leaves: Leaves, outputs: Any) -> None:
    """Complex numbers, typed keys and empty outputs have no bits to tie one trip to the next with."""
    tied = [*map(jnp.asarray, leaves), *jax.tree.leaves(outputs)[:1]]
    for value in tied:
        odd = jnp.issubdtype(value.dtype, jnp.complexfloating) or jax.dtypes.issubdtype(
            value.dtype, jax.dtypes.extended
        )
        if odd or not value.size:
            raise NotMeasured(
                f"XLA makes one machine function of this small loop, and {value.dtype}{list(value.shape)} gives it "
                "nothing to tie one trip to the next"
            )


def _compiled(loop: Callable[..., Any], leaves: Leaves) -> tuple[Callable[..., Any], str]:
    """(callable, optimised HLO). Whatever does not trace or compile inside a loop is a reason, not a crash."""
    try:
        jitted = jax.jit(loop)
        text = jitted.lower(jnp.int32(1), *leaves).compile().as_text()
        jax.block_until_ready(jitted(jnp.int32(1), *leaves))
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"it cannot run inside a compiled loop ({type(error).__name__}: {first_line})") from error
    return jitted, text or ""


def _slope(run: Callable[..., Any], leaves: Leaves) -> Callable[[int], int]:
    wait = jax.block_until_ready

    def sample(n: int) -> int:
        few, many = jnp.int32(n // 2), jnp.int32(n // 2 + n)
        wait((few, many))
        start = perf_counter_ns()
        wait(run(few, *leaves))
        between = perf_counter_ns()
        wait(run(many, *leaves))
        return perf_counter_ns() - between - (between - start)

    return sample
