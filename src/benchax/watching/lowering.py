"""Sees functions that are compiled by hand, `jax.jit(f).lower(...).compile()`, and records the function of each
program.

JAX reports such a compilation by its name alone. Its `jax.stages.Compiled` knows neither the function nor the arguments
of the lowering. Both are on the stack while `lower` runs (`frames.py`); methods of the public `jax.stages.Traced` and
`jax.stages.Lowered` are wrapped during that time. Lowerings of a `Traced` from before are not seen.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import Any

import jax

from benchax.watching import frames
from benchax.watching.frames import JaxCall

Lowering = Callable[[JaxCall, Any], Callable[[float], None]]
"""Receives a call of `lower` and the closed jaxpr that it made. Returns a function that receives the seconds of the
compilation."""


@contextlib.contextmanager
def watch_lowering(hear: Lowering) -> Iterator[None]:
    """Watches all threads, inside the block. Only one block at a time is possible."""
    traced_class: Any = jax.stages.Traced
    lowered_class: Any = jax.stages.Lowered
    lower, compile_it = traced_class.lower, lowered_class.compile
    lowered_for: weakref.WeakKeyDictionary[Any, tuple[JaxCall, Any]] = weakref.WeakKeyDictionary()

    @functools.wraps(lower)
    def lower_and_note(traced: Any, *args: Any, **kwargs: Any) -> Any:
        lowered = lower(traced, *args, **kwargs)
        with contextlib.suppress(Exception):  # it would surface in the user's call; then this one is not looked at
            call = frames.calling(frozenset())
            if call.fun is not None and not call.is_nested and not frames.is_of_jax(call.fun):
                lowered_for[lowered] = frames.without_arrays(call), hear(call, traced.jaxpr)
        return lowered

    @functools.wraps(compile_it)
    def compile_and_note(lowered: Any, *args: Any, **kwargs: Any) -> Any:
        begun = perf_counter()
        compiled = compile_it(lowered, *args, **kwargs)
        with contextlib.suppress(Exception):  # as above; a KeyError for one that was lowered elsewhere
            call, tell = lowered_for[lowered]
            frames.note_compiled(compiled, call)
            tell(perf_counter() - begun)
        return compiled

    traced_class.lower, lowered_class.compile = lower_and_note, compile_and_note
    try:
        yield
    finally:
        traced_class.lower, lowered_class.compile = lower, compile_it
