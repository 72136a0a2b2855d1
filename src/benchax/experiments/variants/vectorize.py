"""A function of one example over batches: Python loop, `vmap`, `jit(vmap)`, `vmap(jit)`; throughput by batch size.

The four are compared with each other at up to three of the sizes, and all outputs are compared with the loop's.
`jit(vmap)` runs at every size, each paired with the previous one.

The knee is the smallest batch size from which no larger one raises the throughput by more than 10 %. If throughput
still grows by more at the last step, there is no knee.

x+w=1..256 names the arguments that get a batch axis, and its sizes, here and in `broadcast.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.experiments import variant_rows
from benchax.experiments.functions import plain
from benchax.experiments.lab import Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.parsing import arguments, find_argument, halves, sizes
from benchax.experiments.sweeping import LOOKS, Batched, close_over_static, in_words, ladder, points, ratio
from benchax.experiments.variant import Measure
from benchax.measuring.inputs import make_inputs
from benchax.model import Absent, Comparison
from benchax.results.experiment import Curve, Facts, VariantRow
from benchax.units import percent, rate

LOOP = "vmap: loop"
TITLES = {
    LOOP: "a Python loop over the examples, not jitted",
    "vmap: eager": "vmap(f)",
    "vmap: jit(vmap)": "jit(vmap(f))",
    "vmap: vmap(jit)": "vmap(jit(f))",
}
ORDER = "vmap(jit) beside jit(vmap)"
LEAST_GAIN = 1.1


@dataclass(frozen=True, eq=False)
class Vmapped:
    """`jax.vmap` of a function, made once; `is_mapped` says of each argument whether it has a batch axis, in front."""

    fn: Callable[..., Any]
    is_mapped: tuple[bool, ...]
    is_inner_jitted: bool = False

    def __call__(self, *args: Any) -> Any:
        return self._mapped(*args)

    @cached_property
    def _mapped(self) -> Callable[..., Any]:
        fn = jax.jit(self.fn) if self.is_inner_jitted else self.fn
        return jax.vmap(fn, in_axes=tuple(0 if mapped else None for mapped in self.is_mapped))

    def __getstate__(self) -> dict[str, Any]:
        # What is jitted does not travel: the other process jits its own.
        return {key: value for key, value in vars(self).items() if key != "_mapped"}


@dataclass(frozen=True)
class Batching:
    given: Case
    """Not jitted."""
    alone: Case
    """A function of the dynamic arguments alone, by position."""
    seed: int
    permitted: tuple[str, ...]
    """The names of the arguments of `alone`."""
    words: tuple[str, ...]
    """Those that were named; empty without any."""
    batched: tuple[int | str, ...]
    """Those that get a batch axis: the named ones, or all."""
    is_mapped: tuple[bool, ...]
    """Whether each argument of `alone` is mapped."""
    sizes: tuple[int, ...]

    def inputs(self, size: int, *, is_spread: bool = False) -> Batched:
        return Batched(self.given, self.seed, self.batched, size, is_spread)


def parse_batching(variant: str, case: Case, given: Any, seed: int) -> Batching:
    """Reads the value `given` to a variant, for `case`.

    Raises:
        UsageError: an argument that does not exist, or an invalid size.
        NotAvailable: the function under the jit cannot be reached.
    """
    unjitted = plain(case, seed)
    inputs = make_inputs(unjitted, seed)
    permitted = arguments(unjitted, inputs)
    text, listed = halves(variant, given)
    chosen = sizes(variant, listed)
    words = tuple(text.split("+")) if text else ()
    batched = tuple(dict.fromkeys(find_argument(variant, word, permitted) for word in words or permitted))
    is_mapped = tuple(key in batched for key in permitted.values())
    alone = replace(unjitted, fn=close_over_static(unjitted, inputs), static=(), donate=())
    return Batching(unjitted, alone, seed, tuple(permitted), words, batched, is_mapped, chosen)


@dataclass(frozen=True, eq=False)
class Looped:
    """One call for each example, and the outputs stacked."""

    fn: Callable[..., Any]
    is_mapped: tuple[bool, ...]
    size: int

    def __call__(self, *args: Any) -> Any:
        outputs = [self.fn(*(self._example(i, *pair) for pair in zip(args, self.is_mapped, strict=True)))
                   for i in range(self.size)]  # fmt: skip
        return jax.tree.map(lambda *each: jnp.stack(each), *outputs)

    def _example(self, i: int, tree: Any, is_mapped: bool) -> Any:
        return jax.tree.map(lambda leaf: leaf[i], tree) if is_mapped else tree


@dataclass(frozen=True)
class Vectorize:
    name: str = "vmap"
    title: str = "batches of examples: loop, vmap, jit(vmap), vmap(jit), throughput (vmap=x=1..256)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told the batch sizes: vmap=x=1..256, where x is what gets a batch axis")
        return _BatchSweep(parse_batching(self.name, case, given, seed)).measure


@dataclass(frozen=True)
class _BatchSweep:
    asked: Batching
    _inputs: dict[int, Batched] = field(default_factory=dict[int, Batched], repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.asked.sizes

    def measure(self, lab: Lab) -> tuple[VariantRow | Curve, ...]:
        beside = beside_each_other(self.sizes)
        ways = {size: self._ways(size) for size in beside}
        labels = [f"batch {size}" for size in self.sizes]
        steps = ladder(labels, [self._vmap(size) for size in self.sizes])
        pairs = [pair for size in beside for pair in _four(size, ways[size])]
        found = lab.time_pairs([*steps, *pairs], LOOKS)
        if len(self.sizes) == 1:  # no ladder: it ran beside the loop
            found = {**found, labels[0]: found[_name("vmap: jit(vmap)", self.sizes[0])]}
        return (*self._rows(beside, found), self._curve(labels, found))

    def _case(self, fn: Callable[..., Any], size: int, *, jit: bool) -> Case:
        # One factory for each size: then the sides of a pair are given the same arrays.
        inputs = self._inputs.setdefault(size, self.asked.inputs(size))
        return replace(self.asked.alone, fn=fn, inputs=inputs, jit=jit)

    def _vmap(self, size: int) -> Case:
        return self._case(Vmapped(self.asked.alone.fn, self.asked.is_mapped), size, jit=True)

    def _ways(self, size: int) -> dict[str, Case]:
        fn, is_mapped = self.asked.alone.fn, self.asked.is_mapped
        return {
            LOOP: self._case(Looped(fn, is_mapped, size), size, jit=False),
            "vmap: eager": self._case(Vmapped(fn, is_mapped), size, jit=False),
            "vmap: jit(vmap)": self._vmap(size),
            "vmap: vmap(jit)": self._case(Vmapped(fn, is_mapped, is_inner_jitted=True), size, jit=False),
        }

    def _rows(self, beside: Sequence[int], found: Mapping[str, Comparison]) -> list[VariantRow]:
        """The rows are about the largest size; the other sizes are facts."""
        absent = Absent("comparison", "the others are compared with it")
        rows = [VariantRow(LOOP, TITLES[LOOP], reason=absent.why, sentence=absent.why, absent=(absent,))]
        for name in list(TITLES)[1:]:
            row = _judge_batch(name, found[_name(name, beside[-1])], beside[-1])
            facts = [(f"batch {size}", in_words(found[_name(name, size)])) for size in beside[:-1]]
            if name == "vmap: vmap(jit)":
                facts += [(f"{ORDER}, batch {size}", in_words(found[_name(ORDER, size)])) for size in beside]
            rows.append(replace(row, facts=tuple(facts)))
        return rows

    def _curve(self, labels: Sequence[str], found: Mapping[str, Comparison]) -> Curve:
        steps = [found.get(label) for label in labels[1:]]
        gains = [step_gain(c, b / a) for c, a, b in zip(steps, self.sizes, self.sizes[1:], strict=False)]
        gained = dict(zip(self.sizes[1:], zip(self.sizes, gains, strict=False), strict=True))

        def facts(size: int, seconds: float) -> Facts:
            before, gain = gained.get(size, (0, None))
            paired = f", {ratio(*gain)} that of {before}, beside it" if gain else ""
            return (("throughput:", rate(size / seconds, "examples") + paired),)

        listed = points(self.sizes, labels, found, facts)
        at = knee(self.sizes, [gain[0] if gain else None for gain in gains])
        sentence = _describe_gains(self.sizes, gains, at)
        return Curve("vmap", "jit(vmap) by batch size", "batch size", listed, at, sentence)


def beside_each_other(sizes: Sequence[int]) -> list[int]:
    """The first, the middle and the last: a Python loop over many examples takes its time."""
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})


def _name(way: str, size: int) -> str:
    return f"{way}, batch {size}"


def _four(size: int, ways: Mapping[str, Case]) -> list[Pair]:
    others = [Pair(_name(name, size), LOOP, ways[LOOP], name, case) for name, case in ways.items() if name != LOOP]
    one, other = "vmap: jit(vmap)", "vmap: vmap(jit)"
    return [*others, Pair(_name(ORDER, size), one, ways[one], other, ways[other])]


def _judge_batch(name: str, c: Comparison, size: int) -> VariantRow:
    """Judges a batch against the loop. Outputs of a pair are compared whenever both have run."""
    row = VariantRow(name, TITLES[name])
    if c.numerics is not None and not c.numerics.agrees:
        return variant_rows.wrong_row(row, f"unlike the loop: {c.numerics.why}")
    row = variant_rows.add_comparison(row, c, VariantRow(LOOP, TITLES[LOOP]))
    return replace(row, sentence=f"batch {size}, beside the loop: {row.sentence}") if row.status == "ok" else row


Gain = tuple[float, float | None, float | None]


def step_gain(c: Comparison | None, factor: float) -> Gain | None:
    """How many times the throughput, with its interval, for `factor` times the batch."""
    if c is None or not c.ratio:
        return None
    return factor / c.ratio, c.high and factor / c.high, c.low and factor / c.low


def knee(sizes: Sequence[int], gains: Sequence[float | None]) -> int | None:
    """The smallest size from which no larger one has more than `LEAST_GAIN` times its throughput.

    Args:
        gains: the gain of each step, from one size to the next.

    Returns:
        None if that is the last size only, or a step was not measured.
    """
    if not gains or None in gains:
        return None
    for i, size in enumerate(sizes[:-1]):
        total, most = 1.0, 1.0
        for gain in gains[i:]:
            # Small gains of several steps may make a large one.
            total *= gain or 0.0
            most = max(most, total)
        if most <= LEAST_GAIN:
            return size
    return None


def _describe_gains(sizes: Sequence[int], gains: Sequence[Gain | None], at: int | None) -> str:
    if not gains:
        return ""
    if None in gains:
        return "a step could not be measured, so there is no knee"
    last = gains[-1]
    if at is None and last is not None:
        return f"throughput still grew at the last step, by {_gain(last)}: there is no knee up to {sizes[-1]}"
    return f"knee at {at}: no larger batch raises the throughput by more than {percent(LEAST_GAIN - 1)}"


def _gain(gain: Gain) -> str:
    middle, low, high = gain
    around = f" ({percent(low - 1)} – {percent(high - 1)})" if low and high else ""
    return f"{percent(middle - 1)}{around}"


MEMBERS = (Vectorize(),)
