"""What stands in a pytree beside its arrays: attributes of modules, settings, None. By path, as users write it.

JAX compares these as part of a tree's structure, whose text nobody can read. Walked here as Python has them: in
containers, and in objects that are pytrees, such as modules of equinox and flax.nnx, dataclasses and named tuples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

MOST = 1000
"""Attributes of one argument."""
DEEPEST = 20
HIDDEN = "_pytree__"
"""What flax.nnx keeps for itself in each module."""


def attributes(value: Any, path: str) -> dict[str, Any]:
    """What is no array: None, numbers, strings, functions, dtypes."""
    found: dict[str, Any] = {}
    for where, one in _walk(value, path, DEEPEST, set()):
        if len(found) >= MOST:
            break
        found[where] = one
    return found


def _walk(value: Any, path: str, depth: int, above: set[int]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, jax.Array | np.ndarray | np.generic) or hasattr(value, "aval") or depth == 0:
        return
    if id(value) in above:  # a graph of modules may hold itself
        return
    above = above | {id(value)}
    for name, child in _children(value, path) or ():
        yield from _walk(child, name, depth - 1, above)
    if _children(value, path) is None:
        yield path, value


def _children(value: Any, path: str) -> list[tuple[str, Any]] | None:
    """(path, part) of each; None of what has no parts."""
    if isinstance(value, Mapping):
        return [(f"{path}[{key!r}]", child) for key, child in value.items()]
    if hasattr(value, "_fields"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, list | tuple):
        return [(f"{path}[{i}]", child) for i, child in enumerate(value)]
    held = getattr(value, "__dict__", None)
    if not held or isinstance(value, type) or callable(getattr(value, "__code__", None)) or _is_leaf(value):
        return None
    return [(f"{path}.{name}", child) for name, child in held.items() if not name.startswith(HIDDEN)]


def _is_leaf(value: Any) -> bool:
    # One level, not all: a module that holds itself has no end.
    return jax.tree_util.default_registry.flatten_one_level(value) is None
