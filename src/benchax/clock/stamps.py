"""Reads the clock inside compiled code: `stamp`, the differences of stamps, and `tie` for work that stamps do not hold.

In XLA:CPU, only data dependencies determine the order of operations. So a stamp passes its operands through: work on
the returned ones runs after it, and the work that made its operands ran before it. Tests with functions of known
duration show that three other ways do *not* pin a clock. Plain operands whose results are not used further: equal
readings are merged, and the function runs before or after. `has_side_effect=True`: it is kept, but nothing waits for
it. `lax.optimization_barrier`: it is gone before XLA schedules. With two functions in a program these look right; with
sixteen, XLA runs them on several threads in any order.

A stamp holds back only the work on its operands. A positional encoding, a mask of a fixed key, or a loop over constants
depends on no input. XLA computes it before the reading, or only once if the repetitions are in a loop (its pass
`while-loop-invariant-code-motion`). XLA moves nothing out of the branch of a conditional. It compiles the branch like
the function alone: constants are folded, loops optimised, work shared among threads. So tied work runs as a branch that
is always taken (`run_in_branch`). The choice of the branch depends on the time, so that it is only known at run time. A
conditional costs 0.07 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer

from benchax.clock import handlers
from benchax.clock.handlers import nanoseconds, tier
from benchax.clock.times import minus
from benchax.errors import UsageError
from benchax.static_leaves import data_of, is_key, like

T = TypeVar("T")

_NEVER = 2**32 - 1
"""The high word of a time in nanoseconds does not reach it in 500 years."""


def stamp(inputs: T) -> tuple[T, jax.Array]:
    """Reads the time between the work that made `inputs` and the work on the returned ones. Inside `jax.jit` or
    outside.

        x, start = stamp(x)
        y = f(x)
        y, end = stamp(y)
        seconds = elapsed_s(start, end)

    Continue with the returned values: `start` does not hold back a function of the old `x`. And `end` does not wait for
    a function whose result is not passed through it. A reading takes 0.14 µs (1.3 µs without a C compiler, see `tier`);
    more leaves cost 0.02 µs each. Values, shapes and dtypes do not change, and nothing is copied in a loop.

    Args:
        inputs: a pytree with at least one array or number.

    Returns:
        (inputs, time): the same tree, and u32[2], the nanoseconds of a monotonic clock in two words, low one first.

    Raises:
        UsageError: `inputs` has nothing that can be passed through.
        NotAvailable: this platform has no such clock.

    Stamps cannot be differentiated, nor vmapped: put them outside of `grad` and `vmap`. Arrays that are sharded over
    devices are gathered; stamp inside `jax.shard_map`, once per device.
    """
    leaves, tree = jax.tree.flatten(inputs)
    # Typed keys pass through as their underlying numbers.
    arrays = [_as_array(data_of(leaf)) for leaf in leaves]
    if not arrays:
        raise UsageError(
            f"cannot stamp {inputs!r}: it holds no arrays",
            "inputs or outputs of the timed function",
            "if no data depend on a time, XLA can read it at any moment",
        )
    passed, time = handlers.stamp(tier(), arrays)
    return jax.tree.unflatten(tree, map(like, leaves, passed)), time


def _as_array(leaf: Any) -> jax.Array:
    try:
        return jnp.asarray(leaf)
    except (TypeError, ValueError, OverflowError, SyntaxError) as error:  # the last one of NumPy, for ","
        raise UsageError(f"cannot stamp {leaf!r}: {error}", "arrays and numbers, or pytrees of them") from error


def tie(function: Callable[..., Any]) -> Callable[..., Any]:
    """Ties `function` to a reading of the clock: call it with the reading, and no part of it is computed before.

        x, start = stamp(x)
        y = tie(f)(start, x)
        y, end = stamp(y)

    Without it, work that does not depend on `x` (a mask, a fixed key, a loop over constants) can run before `start` or,
    in a loop, once for all of its iterations. Constants that XLA folds when it compiles `f` alone are folded here too.
    Results are those of `f`. It costs 0.07 µs.

    Returns:
        A function of (time, *args): u32[2] as `stamp` returns it, and the arguments of `function`, all of them arrays
        or pytrees of arrays, as its results are. Call it inside `jax.jit`.
    """
    return lambda time, *args: run_in_branch(lambda args: function(*args), args, time[1])


def run_in_branch(function: Callable[[Any], T], inputs: Any, word: Any) -> T:
    """Returns `function(inputs)`, a pytree of arrays; no part of it is computed before `word`.

    Args:
        word: u32[], unknown to XLA: the high word of a time, `time[1]`, or any other value except 2**32 - 1.
    """
    shapes = jax.eval_shape(function, inputs)

    def never(_: Any) -> T:
        # Don't reuse an existing array: XLA would have to copy it in every run.
        return jax.tree.map(_zeros, shapes)

    return lax.cond(word != jnp.uint32(_NEVER), function, never, inputs)


def _zeros(shape: Any) -> Any:
    if is_key(shape):
        return lax.full(shape.shape, 0, shape.dtype)
    return jnp.zeros(shape.shape, shape.dtype)


def elapsed_s(start: Any, end: Any) -> Any:
    """Seconds from one stamp to another.

    Args:
        start, end: u32[..., 2], as `stamp` returns them.

    Returns:
        f32[...] inside `jax.jit` (exact to 6e-8 of it), else float64 NumPy numbers.

    Raises:
        UsageError: what is given are no stamps.
    """
    if isinstance(start, Tracer) or isinstance(end, Tracer):
        for time in (start, end):
            if jnp.shape(time)[-1:] != (2,):
                raise UsageError(f"{time!r} isn't a time", "times as `stamp` returns them: u32[..., 2]")
        # The high word would be 2^32 - 1 if the end came before the start, which a monotonic clock rules out.
        words = minus(end, start).astype(jnp.float32)
        return (words[..., 1] * 2.0**32 + words[..., 0]) * 1e-9
    return (nanoseconds(end) - nanoseconds(start)) / 1e9
