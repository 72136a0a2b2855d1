"""Outputs on their way from the worker: a description of the tree in JSON, and its leaves as arrays.

A worker's answer is never unpickled, so the tree is built again from its description. Dicts, lists, tuples and None
come back as they were. The leaves of other containers (named tuples, a user's own classes) come back in a dict by path.
A typed key of `jax.random` comes back as its key data.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

LONGEST_TEXT = 200


def taken_apart(tree: Any) -> tuple[Any, list[Any]]:
    """(description, leaves). The leaves stay where they are: `on_host` copies them."""
    leaves: list[Any] = []
    return _describe(tree, leaves), leaves


def on_host(leaves: Sequence[Any]) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in leaves]


def put_together(description: Any, leaves: Sequence[np.ndarray]) -> Any:
    """Inverse of `taken_apart`, as far as the description goes."""
    match description:
        case {"leaf": int(i)}:
            return leaves[i]
        case {"text": str(text)}:
            return text
        case {"dict": list(items)}:
            return {key: put_together(item, leaves) for key, item in items}
        case {"list": list(items)}:
            return [put_together(item, leaves) for item in items]
        case {"tuple": list(items)}:
            return tuple(put_together(item, leaves) for item in items)
        case _:
            return None


def shape_text(description: Any, leaves: Sequence[Any]) -> str:
    """The structure and the shapes, without types: [4], ([4], {loss: []}). Equal texts mean equal shapes."""
    match description:
        case {"leaf": int(i)}:
            return f"[{','.join(map(str, np.shape(leaves[i])))}]"
        case {"dict": list(items)}:
            return "{" + ", ".join(f"{key}: {shape_text(item, leaves)}" for key, item in items) + "}"
        case {"list": list(items)}:
            return "list(" + ", ".join(shape_text(item, leaves) for item in items) + ")"
        case {"tuple": list(items)}:
            return "(" + ", ".join(shape_text(item, leaves) for item in items) + ")"
        case _:
            return "None" if description is None else json.dumps(description)


def size_bytes(leaves: Sequence[Any]) -> int:
    """Adds up the bytes of all arrays; nothing is copied."""
    return sum(leaf.nbytes for leaf in leaves if hasattr(leaf, "nbytes"))


def _describe(tree: Any, leaves: list[Any]) -> Any:
    if tree is None:
        return None
    # Exactly these types: a subclass, or a key of another type, would come back as something else.
    if type(tree) is dict and all(type(key) in (str, int, bool) for key in tree):
        return {"dict": [[key, _describe(value, leaves)] for key, value in tree.items()]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [_describe(value, leaves) for value in tree]}
    if _is_leaf(tree):
        return _leaf(tree, leaves)
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"dict": [[jax.tree_util.keystr(path), _leaf(leaf, leaves)] for path, leaf in flat]}


def _is_leaf(value: Any) -> bool:
    return jax.tree_util.all_leaves([value])


def _leaf(value: Any, leaves: list[Any]) -> Any:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if not isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        return {"text": repr(value)[:LONGEST_TEXT]}  # jit returns none, but wrappers and eager calls may
    leaves.append(value)
    return {"leaf": len(leaves) - 1}
