"""Triggers JAX's one-time work in a process with a small program, before the stages of the user's program are timed.

Lowering the first function in a process took 30 to 60 ms, and lowering the next one took 8. In the first, JAX imports
modules, loads dialects of MLIR, and starts LLVM. So a small program is traced, lowered and compiled first (50 ms,
once).

The first use of a function of JAX cannot be done beforehand: `relu` is itself jitted, and is traced at its first use
with such shapes. If a function has operations that no earlier function had, `Stages.cold` says so.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.measuring.stages import BuiltProgram, is_cache_on
from benchax.model import Cold
from benchax.program.jaxpr import equations

_SEEN: set[str] = set()
"""Operations of the functions that were built in this process, and functions of JAX that are jitted themselves."""


@lru_cache(maxsize=1)
def do_first_work() -> None:
    """Traces, lowers and compiles a small program, and never runs it. Nothing the second time."""
    # Where it does not compile, neither will the user's program, which then says why.
    with contextlib.suppress(Exception):
        lowered = jax.jit(_program).lower(np.ones((2, 2), np.float32))
        # A persistent cache is the user's; and JAX decides at the first compilation of a process whether it has one.
        if not is_cache_on():
            lowered.compile()


def _program(x: Any) -> Any:
    """A product, a reduction, and operations on elements, one of which is a jitted function of JAX."""
    return jnp.where(x > 0, jnp.tanh(x @ x), x).sum()


def note_first_uses(built: BuiltProgram, cold: Cold) -> Cold:
    """ "operations" where this function brought some that none before it had, else what it was.

    Args:
        cold: what had never been compiled before it, as far as whoever started this process knows.
    """
    if built.traced is None or cold != "function":
        return cold
    new = operations_of(built.traced.jaxpr) - _SEEN
    _SEEN.update(new)
    return "operations" if new else cold


def forget_first_uses() -> None:
    """The next function of each operation is the first again: what JAX had kept of it is gone."""
    _SEEN.clear()


def operations_of(jaxpr: Any) -> set[str]:
    """Names of primitives, and of the jitted functions in it: `relu` is one operation to whoever writes it."""
    found = [each.equation for each in equations(jaxpr)]
    inner = {f"{e.primitive.name} {e.params['name']}" for e in found if isinstance(e.params.get("name"), str)}
    return {e.primitive.name for e in found} | inner
