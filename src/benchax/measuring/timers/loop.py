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

from benchax.artifacts.hlo import entry_uses_parameters, has_small_call
from benchax.errors import NotMeasured
from benchax.measuring.timers.base import Prepared, Subject

_UNSIGNED = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}
Carried = list[Any]


class Loop:
    name = "loop"
    answers = "cost inside a bigger program"

    def prepare(self, subject: Subject) -> Prepared:
        """Raises `NotMeasured` with the reason where no such loop can be built."""
        _check(subject)
        body, leaves = _body(subject)
        run, text = _compiled(_barrier_loop(body), leaves)
        if not has_small_call(text):
            return Prepared(_slope(run, leaves), _regime(), least_iterations=2, length=7.0)
        _check_tiny(leaves, subject.outputs)
        zero = jnp.uint32(0)
        run, _ = _compiled(_data_loop(body), [zero, *leaves])
        return Prepared(_slope(run, [zero, *leaves]), "single kernel", least_iterations=2, length=7.0)


def _regime() -> str:
    return "thunks" if jax.default_backend() == "cpu" else "kernels"


def _check(subject: Subject) -> None:
    if subject.program.inner is None:
        kind = "un-jitted" if subject.program.kind == "eager" else "as a Compiled"
        raise NotMeasured(f"a function that is given {kind} cannot be called inside a compiled loop")
    if subject.donates:
        raise NotMeasured("it donates its arguments, and a loop would reuse them as its own carry")
    if not subject.dynamic_leaves:
        raise NotMeasured("it takes no arrays: nothing ties one trip to the next, and XLA would run it once")
    if entry_uses_parameters(subject.hlo) is False:
        raise NotMeasured("its compiled program does not depend on its inputs, so that a loop would compute it once")


def _body(subject: Subject) -> tuple[Callable[[Carried], Any], Carried]:
    """(the function of its array leaves alone, those leaves); static arguments and other objects are closed over."""
    inner: Any = subject.program.inner
    leaves, tree = jax.tree.flatten(subject.dynamic)
    carried = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | int | float | complex)]

    def body(values: Carried) -> Any:
        filled = list(leaves)
        for place, value in zip(carried, values, strict=True):
            filled[place] = value
        args, kwargs = jax.tree.unflatten(tree, filled)
        args = [value if i in subject.static else args[i] for i, value in enumerate(subject.inputs.args)]
        static = {name: value for name, value in subject.inputs.kwargs.items() if name in subject.static}
        return inner(*args, **kwargs, **static)

    return body, [leaves[i] for i in carried]


def _barrier_loop(body: Callable[[Carried], Any]) -> Callable[..., Any]:
    def loop(trips: Any, *leaves: Any) -> Any:
        def trip(_: Any, carry: Any) -> Any:
            return lax.optimization_barrier((carry[0], body(carry[0])))

        return lax.fori_loop(0, trips, trip, (list(leaves), _zeros(body, leaves)))[1]

    return loop


def _data_loop(body: Callable[[Carried], Any]) -> Callable[..., Any]:
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


def _zeros(body: Callable[[Carried], Any], leaves: Any) -> Any:
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


def _check_tiny(leaves: Carried, outputs: Any) -> None:
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


def _compiled(loop: Callable[..., Any], leaves: Carried) -> tuple[Callable[..., Any], str]:
    """(callable, optimised HLO). Whatever does not trace or compile inside a loop is a reason, not a crash."""
    try:
        jitted = jax.jit(loop)
        text = jitted.lower(jnp.int32(1), *leaves).compile().as_text()
        jax.block_until_ready(jitted(jnp.int32(1), *leaves))
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"it cannot run inside a compiled loop ({type(error).__name__}: {first_line})") from error
    return jitted, text or ""


def _slope(run: Callable[..., Any], leaves: Carried) -> Callable[[int], int]:
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
