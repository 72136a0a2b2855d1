"""Inputs of other sizes, made of those that a case has: cropped, repeated, padded, stacked to batches.

No value is new, so that what the function expects of its inputs (indices in range, positive numbers) still holds. Only
keys are: a batch of them is split from the one that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.experiments.parsing import CommonAxis
from benchax.measuring.inputs import Inputs, make_inputs

Call = tuple[tuple[Any, ...], Mapping[str, Any]]


def change_arrays(inputs: Inputs, change: Callable[[int | str, Any], Any]) -> Call:
    """The call with `change(argument, array)` in place of each array."""

    def each(key: int | str, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: change(key, leaf) if isinstance(leaf, jax.Array) else leaf, tree)

    args = tuple(value if i in inputs.static else each(i, value) for i, value in enumerate(inputs.args))
    return args, {k: value if k in inputs.static else each(k, value) for k, value in inputs.kwargs.items()}


@dataclass(frozen=True)
class Resized:
    """An input factory: some axes have `size`, cropped or repeated, and `padded` with zeros at their ends."""

    case: Case
    seed: int
    axes: tuple[CommonAxis, ...]
    size: int
    padded: int | None = None

    def __call__(self) -> Call:
        return change_arrays(make_inputs(self.case, self.seed), self._leaf)

    def _leaf(self, key: int | str, leaf: Any) -> Any:
        for axis in self.axes:
            if axis.argument == key:
                leaf = jnp.take(leaf, jnp.arange(self.size) % leaf.shape[axis.axis], axis=axis.axis)
                leaf = _pad(leaf, axis.axis, self.padded or self.size)
        return leaf


def _pad(leaf: Any, axis: int, size: int) -> Any:
    missing = [(0, size - n if i == axis else 0) for i, n in enumerate(leaf.shape)]
    return jnp.pad(leaf, missing) if size > leaf.shape[axis] else leaf


@dataclass(frozen=True)
class OfArrays:
    """A function of the dynamic arguments of a case alone, all by position, as `vmap` wants it."""

    fn: Callable[..., Any]
    count: int
    """Of the arguments by position, static ones included."""
    dynamic: tuple[int | str, ...]
    static: tuple[tuple[int | str, Any], ...]

    def __call__(self, *values: Any) -> Any:
        whole = {**dict(self.static), **dict(zip(self.dynamic, values, strict=True))}
        args = [whole[i] for i in range(self.count)]
        return self.fn(*args, **{key: value for key, value in whole.items() if isinstance(key, str)})

    # By identity: static values need not be hashable, and JAX keeps what it traced by the function.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def of_arrays(case: Case, inputs: Inputs) -> OfArrays:
    keys: list[int | str] = [*range(len(inputs.args)), *inputs.kwargs]
    whole = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    static = tuple((key, whole[key]) for key in keys if key in inputs.static)
    return OfArrays(case.fn, len(inputs.args), tuple(key for key in keys if key not in inputs.static), static)


@dataclass(frozen=True)
class Batched:
    """An input factory: the dynamic arguments by position; those in `batched` with a batch axis of `size` in front.

    `is_spread`: the others have one too, all entries equal.
    """

    case: Case
    seed: int
    batched: tuple[int | str, ...]
    size: int
    is_spread: bool = False

    def __call__(self) -> Call:
        inputs = make_inputs(self.case, self.seed)
        args, kwargs = change_arrays(inputs, self._leaf)
        dynamic = [value for i, value in enumerate(args) if i not in inputs.static]
        return (*dynamic, *(value for name, value in kwargs.items() if name not in inputs.static)), {}

    def _leaf(self, key: int | str, leaf: Any) -> Any:
        if key in self.batched:
            return _batch(leaf, self.size)
        return jnp.broadcast_to(leaf, (self.size, *leaf.shape)).copy() if self.is_spread else leaf


def _batch(leaf: Any, size: int) -> Any:
    """Example k is the one that was given, its values shifted by k places: alike, and all different."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        split = jax.vmap(lambda key: jax.random.split(key, size), out_axes=1)(leaf.reshape(-1))
        return split.reshape(size, *leaf.shape)
    places = (jnp.arange(leaf.size)[None, :] + jnp.arange(size)[:, None]) % max(1, leaf.size)
    return leaf.reshape(-1)[places].reshape(size, *leaf.shape)


@dataclass(frozen=True)
class With:
    """An input factory: one argument has another value."""

    case: Case
    argument: int | str
    value: Any

    def __call__(self) -> Call:
        args, kwargs = self.case.inputs()
        if isinstance(self.argument, int):
            return (*args[: self.argument], self.value, *args[self.argument + 1 :]), kwargs
        return args, {**kwargs, self.argument: self.value}
