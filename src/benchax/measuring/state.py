"""Arguments that a call changes in place: takes them apart into values, and puts them together again.

Two kinds are known: objects of Flax NNX (modules, optimizers, `Rngs`, variables) and references (`jax.new_ref`). The
measured function is then a function of its values and its state, and the new state is one of its outputs. Every call
starts from the same values, on its own objects. A measured call never gets the user's objects.

Only public functions of NNX are used (`nnx.split`, `nnx.merge`, `nnx.iter_graph`; tried with flax 0.12.8), and only if
the user has imported it. All objects of a call are one graph: a model inside an optimizer stays the same model.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import numpy as np

from benchax.errors import NotMeasured
from benchax.static_leaves import is_nnx_object

Values = dict[str, Any]
"""The values of mutable arguments, by a name such as `model.bn.mean`."""


@partial(jax.tree_util.register_dataclass, data_fields=["outputs", "state"], meta_fields=[])
@dataclass(frozen=True)
class CallOutcome:
    """All that a call of a stateful function gives: what it returns, and what it has changed."""

    outputs: Any
    state: Values


@dataclass(frozen=True)
class Parts:
    """The values inside a call's arguments, and how to make arguments of such values again."""

    leaves: list[Any]
    """As `jax.tree.leaves` gives them; what mutable objects hold comes last."""
    names: dict[int, str]
    """The names of the leaves that a call can change, by their place in `leaves`."""
    merge: Callable[[Sequence[Any]], Any] = field(repr=False)
    """Arguments of these values, on new objects."""

    @property
    def values(self) -> Values:
        return {name: self.leaves[i] for i, name in self.names.items()}


def is_stateful(tree: Any) -> bool:
    """Is there anything in it that a call can change?"""
    return any(is_nnx_object(leaf) or is_ref(leaf) for leaf in jax.tree.leaves(tree, is_leaf=is_nnx_object))


def holds_objects(tree: Any) -> bool:
    """Are there objects of Flax NNX in it?"""
    return any(map(is_nnx_object, jax.tree.leaves(tree, is_leaf=is_nnx_object)))


def without_objects(tree: Any) -> Any:
    """`tree` with None for each object of Flax NNX; its leaves are the first of those that `take_apart` gives."""
    return jax.tree.map(lambda leaf: None if is_nnx_object(leaf) else leaf, tree, is_leaf=is_nnx_object)


def take_apart(tree: Any, labels: Sequence[str] = ()) -> Parts:
    """`tree` is a call, `(args, kwargs)`, or anything else; `labels` are names for the positions of `args`."""
    found, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_nnx_object)
    objects = [i for i, (_, leaf) in enumerate(found) if is_nnx_object(leaf)]
    others = [i for i, (_, leaf) in enumerate(found) if not is_nnx_object(leaf)]
    graph, held, held_structure = _split([found[i][1] for i in objects])
    where = [label(path, labels) for path, _ in found]
    leaves = [found[i][1] for i in others] + [leaf for _, leaf in held]
    names = {place: where[i] for place, i in enumerate(others) if is_ref(found[i][1])}
    names |= {len(others) + k: _name(where, objects, path) for k, (path, _) in enumerate(held)}
    # Two references that are one stay one: a write through either has to be seen through both.
    twins = _first_of_each(leaves)

    count = len(found)

    def merge(values: Sequence[Any]) -> Any:
        new = _with_refs(values, twins)
        filled: list[Any] = [None] * count  # of `found` it would hold all arrays
        for place, i in enumerate(others):
            filled[i] = new[place]
        if objects:
            state = jax.tree.unflatten(held_structure, new[len(others) :])
            for i, made in zip(objects, _nnx().merge(graph, state), strict=True):
                filled[i] = made
        return jax.tree.unflatten(structure, filled)

    return Parts([_value(leaf) for leaf in leaves], names, merge)


def put_back(tree: Any, parts: Parts) -> None:
    """Makes the mutable objects of `tree` hold again what they held when `parts` was taken of it."""
    old = parts.merge(parts.leaves)
    found = jax.tree.leaves(tree, is_leaf=is_nnx_object)
    for mine, its in zip(found, jax.tree.leaves(old, is_leaf=is_nnx_object), strict=True):
        if is_nnx_object(mine):
            _nnx().update(mine, _nnx().state(its))
        elif is_ref(mine):
            mine[...] = its[...]


def watch(tree: Any, names: Sequence[str], labels: Sequence[str] = ()) -> Callable[[], list[Any]]:
    """A quick way to the arrays that `names` of NNX objects hold from now on: what to wait for after a call.

    References are left out: nothing of theirs can be waited for but a copy.
    """
    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_nnx_object)
    objects = [i for i, (_, leaf) in enumerate(found) if is_nnx_object(leaf)]
    if not objects or not names:
        return list
    where = [label(path, labels) for path, _ in found]
    variables = {
        _name(where, objects, path): value
        for path, value in _nnx().iter_graph(tuple(found[i][1] for i in objects))
        if isinstance(value, _nnx().Variable)
    }
    if any(name not in variables for name in names):  # arrays without a variable around them, or made by the call
        return lambda: [leaf for leaf in take_apart(tree).leaves if isinstance(leaf, jax.Array)]
    readers = [_reader(variables[name]) for name in names]
    return lambda: [value for read in readers if not is_ref(value := read())]


def _reader(variable: Any) -> Callable[[], Any]:
    """`get_raw_value` since flax 0.12; `raw_value` before."""
    return getattr(variable, "get_raw_value", None) or (lambda: variable.raw_value)


def data_of(value: Any) -> Any:
    """Typed keys as the numbers that they are made of: timing programs drop keys, and with them what leads to them."""
    return jax.random.key_data(value) if is_key(value) else value


def is_key(value: Any) -> bool:
    """Is it a typed key of random numbers, or an array of them?"""
    return jax.dtypes.issubdtype(getattr(value, "dtype", np.int32), jax.dtypes.prng_key)


def is_same(one: Any, other: Any) -> bool:
    """Do two values hold the same numbers?"""
    if one is other:
        return True
    one, other = data_of(one), data_of(other)
    return np.array_equal(one, other, equal_nan=jax.numpy.issubdtype(jax.numpy.result_type(one), np.inexact))


def is_ref(leaf: Any) -> bool:
    """Is it a reference, or a tracer of one? `jax.Ref` is public since jax 0.8; before, its type tells."""
    kind = getattr(jax, "Ref", None)
    return hasattr(getattr(leaf, "aval", None), "inner_aval") if kind is None else isinstance(leaf, kind)


def _value(leaf: Any) -> Any:
    return leaf[...] if is_ref(leaf) else leaf


def _first_of_each(leaves: Sequence[Any]) -> dict[int, int]:
    """By the place of each reference: the place where the same one is met first."""
    first: dict[int, int] = {}
    return {i: first.setdefault(id(leaf), i) for i, leaf in enumerate(leaves) if is_ref(leaf)}


def _with_refs(values: Sequence[Any], twins: dict[int, int]) -> list[Any]:
    new = list(values)
    for place, first in twins.items():
        new[place] = _new_ref(values[place]) if place == first else new[first]
    return new


def _new_ref(value: Any) -> Any:
    """`jax.new_ref` since jax 0.8; in `jax.experimental` before, by another name."""
    make = getattr(jax, "new_ref", None) or getattr(importlib.import_module("jax.experimental"), "mutable_array", None)
    if make is None:
        raise NotMeasured(f"jax {jax.__version__} has no public way to make the references that it is given")
    return make(value)


def _split(objects: Sequence[Any]) -> tuple[Any, list[tuple[Any, Any]], Any]:
    """(graph, [(path, leaf)], structure of the leaves)"""
    if not objects:
        return None, [], None
    graph, state = _nnx().split(tuple(objects))
    held, structure = jax.tree_util.tree_flatten_with_path(state)
    return graph, held, structure


def _nnx() -> Any:
    """None if the user has not imported it, and so cannot have objects of it."""
    return sys.modules.get("flax.nnx")


def label(path: tuple[Any, ...], labels: Sequence[str]) -> str:
    """Returns the name of an argument: that in the function's signature, else its position; and where in it."""
    if len(path) < 2:
        return jax.tree_util.keystr(path)
    (is_named, which), rest = map(_step, path[:2]), jax.tree_util.keystr(path[2:])
    if is_named:
        return f"{which}{rest}"
    return f"{labels[which] if which < len(labels) else f'args[{which}]'}{rest}"


def _name(where: Sequence[str], objects: Sequence[int], path: Sequence[Any]) -> str:
    """The first step says which object, the last may say that it is the value of a variable."""
    which, *steps = [_step(key) for key in path]
    if steps and steps[-1] in ("value", "raw_value"):
        steps.pop()
    return ".".join([str(where[objects[which]]), *map(str, steps)])


def _step(key: Any) -> Any:
    for name in ("key", "idx", "name"):
        if hasattr(key, name):
            return getattr(key, name)
    return key
