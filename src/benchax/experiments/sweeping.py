"""Sweeps: many small comparisons in one session, their points and intervals, and inputs of other sizes.

A sweep never compares times of consecutive runs. Each point is measured in pairs with another one. Its interval is the
interval of the medians of blocks, each with its own buffers and executables.

Inputs of other sizes are made from the case's inputs: cropped, repeated, padded, stacked to batches. No value is new,
so the function's assumptions about its inputs (indices in range, positive numbers) still hold. Only keys are new: a
batch of them is split from the given key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.experiments.functions import CallArguments, change_arrays
from benchax.experiments.pair_timing import Pair
from benchax.experiments.parsing import CommonAxis
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Comparison
from benchax.results.experiment import Facts, Point
from benchax.stats.intervals import median_interval
from benchax.units import number, seconds

LOOKS = (2, 3)
"""A sweep has many pairs, so each has two processes, or three where they do not settle it."""


Half = Literal["baseline", "candidate"]


Reading = tuple[float, "float | None", "float | None"]
"""Seconds, and the ends of the interval."""


def reading(*sides: tuple[Comparison | None, Half]) -> Reading | None:
    """Returns the time of one function in these pairs: the median of the medians of its blocks, with the 95 %
    interval."""
    medians = [
        median(block.baseline_s if half == "baseline" else block.candidate_s)
        for c, half in sides
        if c is not None
        for block in c.blocks
    ]
    if not medians:
        return None
    low, high = median_interval(medians) or (None, None)
    return median(medians), low, high


def ladder(labels: Sequence[str], cases: Sequence[Case]) -> list[Pair]:
    """Pairs each case with the previous one, under its own label."""
    steps = range(1, len(cases))
    return [Pair(labels[i], labels[i - 1], cases[i - 1], labels[i], cases[i]) for i in steps]


def points(
    sizes: Sequence[int], labels: Sequence[str], found: Mapping[str, Comparison], facts: Callable[[int, float], Facts]
) -> tuple[Point, ...]:
    """The points of a ladder. `facts` is given the size and the seconds."""
    listed: list[Point] = []
    for i, (size, label) in enumerate(zip(sizes, labels, strict=True)):
        above = found.get(labels[i + 1]) if i + 1 < len(labels) else None
        # All but the first and the last ran in two pairs: beside the one before and the one after.
        own = reading((found.get(label), "candidate"), (above, "baseline"))
        if own is None:
            listed.append(Point(size, label, None, facts=(("not measured:", failure(found.get(label) or above)),)))
        else:
            listed.append(Point(size, label, *own, facts=facts(size, own[0])))
    return tuple(listed)


def failure(c: Comparison | None) -> str:
    if c is None:
        return "there was nothing to measure it beside"
    return c.failure.message if c.failure else c.why


def in_words(c: Comparison) -> str:
    """2.10 µs → 1.10 µs: faster, 1.9× (1.8 – 2.0)"""
    if c.failure is not None:
        return f"failed: {c.failure.message}"
    if c.baseline_value is None or c.candidate_value is None or not c.ratio:
        return f"unclear: {c.why}"
    times = f"{seconds(c.baseline_value)} → {seconds(c.candidate_value)}"
    if c.verdict in ("faster", "slower"):
        return f"{times}: {c.verdict}, {ratio(1 / c.ratio, c.high and 1 / c.high, c.low and 1 / c.low)}"
    return f"{times}: {c.verdict}{f' ({c.why})' if c.why else ''}"


def ratio(middle: float, low: float | None, high: float | None) -> str:
    """1.9× (1.8 – 2.0)"""
    around = f" ({number(low)} – {number(high)})" if low and high else ""
    return f"{number(middle)}×{around}"


# ---- inputs of other sizes ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Resized:
    """An input factory: some axes have `size`, cropped or repeated, and `padded` with zeros at their ends."""

    case: Case
    seed: int
    axes: tuple[CommonAxis, ...]
    size: int
    padded: int | None = None

    def __call__(self) -> CallArguments:
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
class OfDynamic:
    """A function of the dynamic arguments of a case alone, all by position, as `vmap` wants it."""

    fn: Callable[..., Any]
    count: int
    """The number of the arguments by position, static ones included."""
    dynamic: tuple[int | str, ...]
    static: tuple[tuple[int | str, Any], ...]

    def __call__(self, *values: Any) -> Any:
        whole = {**dict(self.static), **dict(zip(self.dynamic, values, strict=True))}
        args = [whole[i] for i in range(self.count)]
        return self.fn(*args, **{key: value for key, value in whole.items() if isinstance(key, str)})

    # By identity: static values need not be hashable, and JAX keeps what it traced by the function.
    __hash__ = object.__hash__
    __eq__ = object.__eq__


def close_over_static(case: Case, inputs: Inputs) -> OfDynamic:
    keys: list[int | str] = [*range(len(inputs.args)), *inputs.kwargs]
    whole = {**dict(enumerate(inputs.args)), **inputs.kwargs}
    static = tuple((key, whole[key]) for key in keys if key in inputs.static)
    return OfDynamic(case.fn, len(inputs.args), tuple(key for key in keys if key not in inputs.static), static)


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

    def __call__(self) -> CallArguments:
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
    # Shifted copies of what is there: values drawn anew might be no indices, or negative where none may be.
    places = (jnp.arange(leaf.size)[None, :] + jnp.arange(size)[:, None]) % max(1, leaf.size)
    return leaf.reshape(-1)[places].reshape(size, *leaf.shape)


@dataclass(frozen=True)
class With:
    """An input factory: one argument has another value."""

    case: Case
    argument: int | str
    value: Any

    def __call__(self) -> CallArguments:
        args, kwargs = self.case.inputs()
        if isinstance(self.argument, int):
            return (*args[: self.argument], self.value, *args[self.argument + 1 :]), kwargs
        return args, {**kwargs, self.argument: self.value}
