"""The measured function inside another compiled program: as a function of its array leaves, where that is possible.

What `loop` and `in_graph` share. A program around the function says what the function costs only if it does the
function's work in every repetition; where that cannot be had, the reason is given.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.errors import NotMeasured
from benchax.measuring.mutation import is_carried
from benchax.measuring.timers.base import Subject
from benchax.program.hlo import entry_uses_parameters

Leaves = list[Any]
Body = Callable[[Leaves], Any]
"""A function of its array leaves; where a program is built around it, one that returns a list of arrays."""


def embedded(subject: Subject) -> tuple[Body, Leaves]:
    """`function_of_leaves`, where that can be repeated inside another program.

    Raises:
        NotMeasured: it would not be the same function there, or not run every time.
    """
    _check(subject)
    body, leaves = function_of_leaves(subject)
    return lambda values: arrays_of(body(values)), leaves


def function_of_leaves(subject: Subject) -> tuple[Body, Leaves]:
    """(the function of its array leaves alone, those leaves); static arguments and other objects are closed over.

    What a call changes in place is given as well (`state.CallOutcome`): XLA would remove what only leads there.

    Raises:
        NotMeasured: it cannot be traced.
    """
    if subject.impure:
        raise NotMeasured(f"two traces of it differ: {subject.impure}")
    inner: Any = subject.program.inner
    if inner is None:
        kind = "without jit" if subject.program.kind == "eager" else "as a Compiled"
        raise NotMeasured(f"a function that is given {kind} cannot be called inside another compiled program")
    return subject.body(inner), subject.dynamic_leaves


def arrays_of(outputs: Any) -> Leaves:
    """The leaves of what a function returned as arrays of plain numbers, so that a loop can carry them.

    Numbers that Python knows (weak types) become arrays, since loops do not take both for one; typed keys the numbers
    that they are made of. What is neither, such as a function inside a module of equinox, is left out.
    """
    carried = [leaf for leaf in jax.tree.leaves(outputs) if is_carried(leaf)]
    leaves = [jax.random.key_data(leaf) if is_key(leaf) else jnp.asarray(leaf) for leaf in carried]
    return [lax.convert_element_type(leaf, leaf.dtype) for leaf in leaves]


def zeros_like_outputs(body: Body, leaves: Leaves) -> Leaves:
    """What a loop around `body` carries in place of its outputs before the first repetition.

    Of NumPy: `jnp.zeros` compiles a program for each new shape, 10 ms.
    """
    return [jax.device_put(np.zeros(s.shape, s.dtype)) for s in jax.eval_shape(body, leaves)]


def number_like(leaf: Any) -> Any:
    """An argument of the same kind, as small as can be."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if is_key(leaf):
        return jax.random.key(0, impl=jax.random.key_impl(leaf))
    return jax.device_put(np.float32(0), leaf.sharding)


def is_key(leaf: Any) -> bool:
    """Is it a typed key of random numbers, or an array of them?"""
    return jax.dtypes.issubdtype(jnp.result_type(leaf), jax.dtypes.prng_key)


def _check(subject: Subject) -> None:
    if subject.donates:
        raise NotMeasured("it donates its arguments, and a program that repeats it would need them again")
    if not subject.dynamic_leaves:
        raise NotMeasured("it takes no arrays: nothing ties one repetition to the next, and XLA would run it once")
    if entry_uses_parameters(subject.hlo) is False:
        raise NotMeasured(
            "its compiled program does not depend on its inputs, so that it would be computed once for all"
        )
