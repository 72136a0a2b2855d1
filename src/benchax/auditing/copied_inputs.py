"""Copies of a function's arguments, for use after the program has ended, and the names of these arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchax.watching.frames import JaxCall
from benchax.watching.signatures import name_arguments
from benchax.watching.transfers import reads_unseen

MOST_COPIED_OF_CALL, MOST_COPIED = 1 << 26, 1 << 27
"""Bytes of the arguments of one call that are copied, and of those of all functions."""


def copy_inputs(call: JaxCall, static: set[Any], jaxpr: Any, rest_bytes: int) -> tuple[Any, ...]:
    """Copies the leaves of its arguments, integers first, because they are indices. A leaf that is too large, or partly
    on devices of other processes, becomes None. The result is empty if leaves do not match the inputs of the jaxpr one
    by one.

    Args:
        rest_bytes: no more is copied.
    """
    leaves = _leaves(call, static)
    if jaxpr is None or len(leaves) != len(jaxpr.in_avals):
        return ()
    rest_bytes = min(rest_bytes, MOST_COPIED_OF_CALL)
    copies: list[Any] = [None] * len(leaves)
    for i in sorted(range(len(leaves)), key=lambda i: not _is_integer(leaves[i])):
        size = getattr(leaves[i], "nbytes", 8)
        if size <= rest_bytes:
            copies[i] = _copy(leaves[i])
            rest_bytes -= size
    return tuple(copies)


def size_of(copies: Sequence[Any]) -> int:
    """Bytes that they take."""
    return sum(getattr(one, "nbytes", 8) for one in copies)


def name_inputs(call: JaxCall, static: set[Any]) -> tuple[str, ...]:
    """Returns the names of the same leaves in the user's function. This also works behind a library's wrapper, which
    gives jax.jit the same arrays in another order."""
    leaves = _leaves(call, static)
    named = [(name, value) for i, (name, value) in enumerate(name_arguments(call)) if call.user or i not in static]
    names = {
        id(leaf): name + jax.tree_util.keystr(path) for name, v in named for path, leaf in jax.tree.leaves_with_path(v)
    }
    return tuple(names.get(id(leaf), f"input {i}") for i, leaf in enumerate(leaves))


def _leaves(call: JaxCall, static: set[Any]) -> list[Any]:
    args = [value for i, value in enumerate(call.args) if i not in static]
    return jax.tree.leaves((args, {name: value for name, value in call.kwargs.items() if name not in static}))


def _is_integer(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(leaf, "dtype", None) or type(leaf), np.integer)


def _copy(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return None
    if not isinstance(leaf, jax.Array | np.ndarray):
        return leaf
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.extended):  # a random key: nothing changes it
        return leaf
    if isinstance(leaf, jax.Array) and not leaf.is_fully_addressable:
        return None
    return read_unseen(leaf) if isinstance(leaf, jax.Array) else leaf.copy()


def read_unseen(array: jax.Array) -> np.ndarray:
    """Returns a copy of an array without reporting the read. It does not use `np.asarray`, because benchax listens to
    it. It does not read the user's own object either, because that object would keep the value."""
    one = array.addressable_data(0) if len(array.sharding.device_set) == 1 else array
    with reads_unseen():
        return one.__array__().copy()
