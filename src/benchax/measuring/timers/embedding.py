"""Puts the measured function inside another compiled program: as a function of its array leaves, if possible.

`loop` and `in_graph` share this code. A program around the function shows the cost of the function only if it does the
function's work in every repetition. If that is not possible, these functions give the reason.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.errors import NotMeasured
from benchax.measuring.state import data_of, is_carried, is_key
from benchax.measuring.timers.base import Subject, refuse
from benchax.program.hlo import entry_uses_parameters

Leaves = list[Any]
Body = Callable[[Leaves], Any]
"""A function of its array leaves; where a program is built around it, one that returns a list of arrays."""


@dataclass(frozen=True)
class Embedded:
    """A function that another program can repeat."""

    body: Body
    leaves: Leaves
    fed: dict[int, int]
    """Which leaf becomes which output in the next repetition, as the function donates it."""
    most_calls: int
    """Repetitions in a row that keep every number finite."""


def feed(fed: Mapping[int, int], values: Leaves, outputs: Leaves) -> Leaves:
    """The values of the next repetition: outputs where `fed` names one."""
    return [like(value, outputs[fed[i]]) if i in fed else value for i, value in enumerate(values)]


def embed(subject: Subject, most_calls: int) -> Embedded:
    """The function of its array leaves, ready to be repeated inside another program.

    Args:
        most_calls: repetitions in a row, at most.

    Raises:
        NotMeasured: it would not be the same function there, or not run every time.
    """
    refuse(
        (
            subject.donates and not subject.feedback,
            "it donates arguments that its outputs cannot replace, so that a repetition has none",
        ),
        (
            not subject.dynamic_leaves,
            "it takes no arrays: nothing ties one repetition to the next, and XLA would run it once",
        ),
        (
            entry_uses_parameters(subject.hlo) is False,
            "its compiled program does not depend on its inputs, so that it would be computed once for all",
        ),
    )
    body, leaves = function_of_leaves(subject)
    # A loop carries no weak types: such numbers stay as they are.
    fed = {i: j for i, j in subject.fed_leaves.items() if not getattr(leaves[i], "weak_type", False)}
    most = min(most_calls, subject.feedback.most_calls) if subject.feedback else most_calls
    return Embedded(lambda values: arrays_of(body(values)), leaves, fed, most)


def function_of_leaves(subject: Subject) -> tuple[Body, Leaves]:
    """Returns (the function of its array leaves alone, those leaves); it closes over static arguments and other
    objects.

    Values that a call changes in place are outputs as well (`state.CallOutcome`). Otherwise XLA would remove the work
    that only leads to them.

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
    """Returns the leaves of a function's outputs as arrays of plain numbers, so that a loop can carry them.

    Python's numbers (weak types) become arrays, since loops distinguish the two. Typed keys become the numbers that
    they consist of. Other leaves, such as a function inside a module of equinox, are left out.
    """
    carried = [leaf for leaf in jax.tree.leaves(outputs) if is_carried(leaf)]
    leaves = [jnp.asarray(data_of(leaf)) for leaf in carried]
    return [lax.convert_element_type(leaf, leaf.dtype) for leaf in leaves]


def zeros_like_outputs(body: Body, leaves: Leaves) -> Leaves:
    """Returns the values that a loop around `body` carries instead of its outputs before the first repetition.

    They are NumPy arrays: `jnp.zeros` compiles a program for each new shape, 10 ms.
    """
    return [jax.device_put(np.zeros(s.shape, s.dtype)) for s in jax.eval_shape(body, leaves)]


def number_like(leaf: Any) -> Any:
    """An argument of the same kind, as small as can be."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if is_key(leaf):
        return jax.random.key(0, impl=jax.random.key_impl(leaf))
    return jax.device_put(np.float32(0), leaf.sharding)


def like(value: Any, data: Any) -> Any:
    """`data`, the numbers that a key is made of, as a key where `value` is one."""
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value)) if is_key(value) else data
