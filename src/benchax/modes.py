"""Modes: a loss as it is, its gradient, or both in one call, as authors of kernels time them.

The mode is a parameter of the case (`attention[mode=grad]`), so that its rows, histories and baselines are its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from benchax.errors import UsageError, one_of

FORWARD = "forward"
MODES = (FORWARD, "grad", "forward_and_grad")


def check_mode(mode: object) -> str:
    """Raises UsageError if `mode` is not a mode."""
    if not isinstance(mode, str) or mode not in MODES:
        raise UsageError(f"mode={mode!r} cannot be", one_of(MODES, mode if isinstance(mode, str) else ""))
    return mode


def in_mode(fn: Callable[..., Any], mode: str, static: tuple[int | str, ...] = ()) -> Callable[..., Any]:
    """Returns `fn`, or a function of the same arguments that returns its gradient, as `jax.grad` and
    `jax.value_and_grad` do.

    The gradient is taken with respect to the first argument that is an array of floats, or a tree of them. Leaves that
    `jax.jit` does not take, such as functions inside a module, have no gradient. A function that is not a loss raises
    JAX's error when it is traced.

    Args:
        static: arguments by position or name, with respect to which no gradient is taken.
    """
    if mode == FORWARD:
        return fn

    # Not the attributes: those of a jitted function would say that this is one.
    @functools.wraps(fn, assigned=("__name__", "__doc__", "__module__"), updated=())
    def gradient(*args: Any, **kwargs: Any) -> Any:
        import jax

        from benchax.static_leaves import hide, reveal

        def loss(*args: Any, **kwargs: Any) -> Any:
            return fn(*reveal(args), **reveal(kwargs))

        transform = jax.grad if mode == "grad" else jax.value_and_grad
        args = tuple(map(hide, args))
        return transform(loss, _argument(args, static))(*args, **kwargs)

    return gradient


def _argument(args: tuple[Any, ...], static: tuple[int | str, ...]) -> int:
    """Position of the first tree of floats.

    Raises:
        TypeError: there is no such tree. This happens inside a trace, where JAX raises the same for a function that is
            not a loss.
    """
    import jax

    for i, tree in enumerate(args):
        leaves = jax.tree.leaves(tree)
        if i not in static and leaves and all(map(_is_float, leaves)):
            return i
    raise TypeError("no argument by position consists of float arrays that a gradient could be taken with respect to")


def _is_float(leaf: Any) -> bool:
    import jax

    return isinstance(leaf, jax.Array) and jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating)
