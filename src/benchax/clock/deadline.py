"""Stops loops inside XLA: `with_deadline` for users, `interruptible` for programs that keep their own time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.clock import rewriting, survey
from benchax.clock.selftest import tier
from benchax.clock.strips import Guard
from benchax.errors import BenchaxError, NotAvailable


def interruptible(
    f: Callable[..., Any], *, must_raise: bool = False, note: Callable[[tuple[str, ...]], None] | None = None
) -> Callable[..., tuple[Any, jax.Array]]:
    """g(until, *args, **kwargs) -> (outputs, is_expired), to be called while tracing.

    Args:
        must_raise: the whole program ends with DEADLINE_EXCEEDED instead of returning what there is.
        note: is told, at every trace, what cannot be stopped (names of primitives).

    `until` is u32[2] from `handlers.deadline`. Leaves of the arguments that are no arrays are constants of the trace.
    """

    def g(until: Any, *args: Any, **kwargs: Any) -> tuple[Any, jax.Array]:
        leaves, tree = jax.tree.flatten((args, kwargs))
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (jax.Array, np.ndarray, np.generic))]

        def flat(*arrays: Any) -> Any:
            new = dict(zip(at, arrays, strict=True))
            args, kwargs = jax.tree.unflatten(tree, [new.get(i, leaf) for i, leaf in enumerate(leaves)])
            return f(*args, **kwargs)

        arrays = [leaves[i] for i in at]
        program, shape = jax.make_jaxpr(flat, return_shape=True)(*arrays)
        outputs, is_expired = _rewritten(program, arrays, Guard(tier(), until, must_raise), note)
        return jax.tree.unflatten(jax.tree.structure(shape), outputs), is_expired

    return g


def _rewritten(program: Any, arrays: list[Any], guard: Guard, note: Any) -> tuple[list[Any], jax.Array]:
    # What is wrong with f itself has come out when it was traced: what fails here is ours, or JAX's.
    try:
        if note:
            note(survey.unchecked(program))
        return rewriting.run(program, arrays, jnp.bool_(False), guard)
    except BenchaxError:
        raise
    except Exception as error:
        raise NotAvailable(
            f"loops cannot be rewritten with JAX {jax.__version__}: {type(error).__name__}: {error}"
        ) from error
