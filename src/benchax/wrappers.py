"""Finds the name of a user's function, and the function under its jits, decorators, partials, and methods."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

MOST = 20
"""The number of wrappers that are looked under. A function can wrap itself."""


def layers(fn: Any) -> Iterator[Any]:
    """A function, and what is under its wrappers, from the outside in. The last one wraps nothing."""
    for _ in range(MOST):
        yield fn
        # A method has the `__wrapped__` of its function.
        if isinstance(fn, MethodType):
            fn = fn.__func__
        elif isinstance(fn, partial):
            fn = fn.func
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        else:
            return


def under_partials(fn: Any) -> Any:
    """The function inside a partial; any other function as it is."""
    while isinstance(fn, partial):
        fn = fn.func
    return fn


def without_jit(fn: Any) -> Any:
    """The function under a jit, also inside a partial; any other function as it is.

    A jitted method stays as it is, because the function under its jit has no object. So does what `jax.pmap` makes: the
    function under it is given other arrays.
    """
    if isinstance(fn, partial):
        inner = without_jit(fn.func)
        return fn if inner is fn.func else partial(inner, *fn.args, **fn.keywords)
    is_mapped = isinstance(fn, FunctionType) or type(fn).__name__ == "PmapFunction"  # the type in older versions of JAX
    is_jitted = hasattr(fn, "lower") and not isinstance(fn, MethodType) and not is_mapped
    return getattr(fn, "__wrapped__", fn) if is_jitted else fn


def name_of(fn: Any) -> str:
    """The name under which people know `fn`: of the function inside a partial, of the class of a callable object."""
    fn = under_partials(fn)
    return getattr(fn, "__name__", None) or type(fn).__name__


def unwrap(fn: Any) -> Any:
    """The innermost of the `layers` of a function."""
    *_, plain = layers(fn)
    return plain
