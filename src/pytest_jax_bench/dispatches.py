"""Which jitted functions a call dispatches, by observing it: however they're called, and whatever is done around them.

JAX tells a hook of each call that runs a compiled program it already has. The hook is private (`jax._src.api`, tried on
jax 0.10.2 and 0.12.0.1). Without it nothing is seen, a call counts as one that isn't jitted, and the session says so. A
first call compiles, which the hook doesn't report, so the second one is observed if it exists.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import Any

import jax

from benchax.watching.compiles import watch_compiles


@dataclass(frozen=True)
class Dispatch:
    """A call of a jitted function, or of a program that `compile()` returned: that has no `__wrapped__` function."""

    fn: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Observed:
    """A function that does what `fn` does, and observes one of its calls.

    Args:
        observed_call: the number of that call, from 1. No call whose time counts; the second one is warm.
    """

    def __init__(self, fn: Callable[..., Any], observed_call: int) -> None:
        functools.update_wrapper(self, fn, updated=())
        self._fn, self._left = fn, observed_call
        self.dispatches: list[Dispatch] = []
        self.is_blind = False
        """Does this JAX lack the hook, so that nothing could be observed?"""
        self.is_lookup = False
        """Does it return a compiled program that JAX kept?"""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        if self._left <= 0:
            return self._fn(*args, **kwargs)
        self._left -= 1
        if self._left:
            return self._fn(*args, **kwargs)
        self.is_blind = _hook() is None
        with watch_compiles() as log, watch_dispatches() as self.dispatches:
            returned = self._fn(*args, **kwargs)
        self.is_lookup = isinstance(returned, jax.stages.Compiled) and (not log.was_asked or log.cache_hits > 0)
        return returned

    @property
    def program(self) -> Dispatch | None:
        """The one jitted function that it calls, if it calls just one and its arguments still exist."""
        functions = {id(one.fn): one for one in self.dispatches}
        if len(functions) != 1:
            return None
        (found,) = functions.values()
        leaves = jax.tree.leaves((found.args, found.kwargs))
        is_gone = any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in leaves)
        return found if hasattr(found.fn, "__wrapped__") and not is_gone else None


def can_be_observed(fn: Any) -> bool:
    """Coroutine functions and generators run nothing when they're called, and keep their own kind of error."""
    lazy = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    called = fn if isinstance(fn, FunctionType | MethodType | partial) else type(fn).__call__
    return isinstance(called, FunctionType | MethodType | partial) and not any(is_lazy(called) for is_lazy in lazy)


def is_jitted(fn: Any) -> bool:
    """Has it stages, as what `jax.jit` and its like make? Functions of JAX itself have them too, and are operations."""
    return callable(fn) and callable(getattr(fn, "lower", None)) and not _is_operation(fn)


def unwrap(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The jitted function in a `functools.partial`, with all its arguments; anything else as it is."""
    inner, inner_args, inner_kwargs = fn, args, kwargs
    while type(inner) is partial:
        inner_args, inner_kwargs = (*inner.args, *inner_args), {**inner.keywords, **inner_kwargs}
        inner = inner.func
    return (inner, inner_args, inner_kwargs) if is_jitted(inner) else (fn, args, kwargs)


def _is_operation(fn: Any) -> bool:
    """Is it what JAX calls by this name? `jax.jit(jnp.sin)` bears the name too, and is the user's."""
    home, name = str(getattr(fn, "__module__", "")), str(getattr(fn, "__name__", ""))
    if home.partition(".")[0] not in ("jax", "builtins"):
        return False
    if home in ("builtins", "jax._src.dispatch"):  # which jits eager primitives one by one
        return True
    named, wrapped = getattr(sys.modules.get(home), name, None), getattr(fn, "__wrapped__", None)
    is_inside = wrapped is not named and getattr(wrapped, "__globals__", {}).get("__name__") == home
    return named is fn or is_inside


def _hook() -> Any:
    return getattr(sys.modules.get("jax._src.api"), "_post_hook_state", None)


@contextmanager
def watch_dispatches() -> Iterator[list[Dispatch]]:
    """Yields the calls of the user's own jitted functions in this thread; none where JAX has no such hook."""
    found: list[Dispatch] = []

    def note(fn: Any, args: Any, kwargs: Any, output: Any) -> None:
        if not _is_operation(fn):
            found.append(Dispatch(fn, tuple(args), dict(kwargs)))

    hook = _hook()
    before = None if hook is None else hook.swap_local(note)
    try:
        yield found
    finally:
        if hook is not None:
            hook.set_local(before)
