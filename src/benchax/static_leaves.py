"""Handles leaves that are not arrays, in arguments and results: functions inside a module, names, settings.

`jax.jit` takes no functions and no texts. It makes a traced value of a bool, but a module such as `equinox.nn.Dropout`
branches on its bool. Users of Equinox wrap their functions in `equinox.filter_jit`, which treats every leaf that is not
an array as static. benchax does the same: `hide` moves such leaves out of the data and into the structure of the tree,
as `Static`, and `reveal` puts them back before the user's function sees them.

Neither Equinox nor Flax is imported here: a tree holds their objects only if the user has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import numpy as np


@dataclass(frozen=True, eq=False)
class Static:
    """A node without children. JAX compiles again for another `value`, as for a static argument."""

    value: Any

    # For Python, 1, 1.0, and True are equal, but a function can treat them differently.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, Static) and type(self.value) is type(other.value) and self.value == other.value

    def __hash__(self) -> int:
        return hash((type(self.value), self.value))


jax.tree_util.register_pytree_node(Static, lambda static: ((), static), lambda static, _: static)


def hide(tree: Any) -> Any:
    """`tree`, with each leaf that is not an array as `Static`, if `jax.jit` would not take the tree as it is.

    Trees of arrays and numbers stay as they are, and so does a single leaf.
    """
    found = jax.tree.leaves(tree, is_leaf=lambda node: is_nnx_object(node) or _is_module(node))
    is_single = len(found) == 1 and found[0] is tree and not _is_module(tree)
    return tree if is_single or all(map(_is_jittable, found)) else hide_all(tree)


def hide_argument(value: Any) -> Any:
    """As `hide`, for an argument, which can be a function or a setting as a whole."""
    return hide([value])[0]


def hide_all(tree: Any) -> Any:
    """`tree`, with each leaf that is not an array as `Static`. Objects of Flax NNX stay as they are.

    So do iterators, coroutines, and tables: as constants their work would be in no time. `jax.jit` refuses them.
    """
    return jax.tree.map(lambda leaf: leaf if _is_data(leaf) else Static(leaf), tree, is_leaf=is_nnx_object)


def reveal(tree: Any) -> Any:
    """Undoes `hide` and `hide_all`."""
    return _replace(tree, lambda static: static.value)


def as_function_of_arrays(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """(`fn` as a function of the arrays among its arguments, these arrays). Other leaves are constants of it."""
    arrays, tree = jax.tree.flatten(hide_all((args, dict(kwargs))))

    def call(*arrays: Any) -> Any:
        args, kwargs = reveal(jax.tree.unflatten(tree, arrays))
        return fn(*args, **kwargs)

    return call, arrays


def find_hidden(tree: Any) -> list[tuple[Any, ...]]:
    """The path to each `Static`."""
    found = jax.tree_util.tree_leaves_with_path(tree, is_leaf=_is_static)
    return [path for path, node in found if _is_static(node)]


def drop(tree: Any) -> Any:
    """`tree`, with None for each `Static`: two calls can return functions that are equal in all but identity."""
    return _replace(tree, lambda static: None)


def _replace(tree: Any, change: Callable[[Static], Any]) -> Any:
    def each(node: Any) -> Any:
        return change(node) if _is_static(node) else node

    return jax.tree.map(each, tree, is_leaf=lambda node: _is_static(node) or is_nnx_object(node))


def _is_static(node: Any) -> bool:
    return isinstance(node, Static)


def _is_jittable(leaf: Any) -> bool:
    if _is_module(leaf):
        return False
    is_number = isinstance(leaf, bool | int | float | complex)
    return is_number or is_nnx_object(leaf) or hasattr(leaf, "__jax_array__") or _is_array(leaf)


def _is_data(leaf: Any) -> bool:
    is_lazy = isinstance(leaf, Awaitable | Iterator)
    return is_nnx_object(leaf) or _is_array(leaf) or hasattr(leaf, "__array__") or is_lazy


def _is_array(leaf: Any) -> bool:
    """Arrays of JAX and NumPy, tracers, references, and shapes that stand for arrays. A class such as `np.float32` has
    these attributes too."""
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype") and not isinstance(leaf, type)


def _is_module(node: Any) -> bool:
    equinox = sys.modules.get("equinox")
    return equinox is not None and isinstance(node, equinox.Module)


def is_nnx_object(leaf: Any) -> bool:
    """Is it a module, an optimizer or a variable of Flax NNX?"""
    nnx = sys.modules.get("flax.nnx")
    return nnx is not None and isinstance(leaf, _classes(nnx))


@lru_cache(maxsize=1)
def _classes(nnx: Any) -> tuple[type, ...]:
    named = (getattr(nnx, name, None) for name in ("Object", "Pytree", "Module", "Variable"))
    return tuple(kind for kind in named if isinstance(kind, type))


# ---- keys ------------------------------------------------------------------------------------------------------------
#
# Typed keys of random numbers are arrays that most of JAX's operations do not take.


def is_key(value: Any) -> bool:
    """Is it a typed key of random numbers, or an array of them?"""
    return jax.dtypes.issubdtype(getattr(value, "dtype", np.int32), jax.dtypes.prng_key)


def data_of(value: Any) -> Any:
    """Typed keys as the numbers that they are made of: timing programs drop keys, and with them what leads to them."""
    return jax.random.key_data(value) if is_key(value) else value


def like(value: Any, data: Any) -> Any:
    """`data`, the numbers that a key is made of, as a key where `value` is one."""
    return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value)) if is_key(value) else data
