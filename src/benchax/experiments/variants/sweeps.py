"""Variants that sweep: values of an argument, sizes, batches. Each point is paired with another one.

A sweep never compares times of consecutive runs. Each point's interval is the interval of the medians of blocks, each
with its own buffers and executables. Inputs of other sizes are made from the case's inputs: cropped, repeated, padded,
stacked to batches. No value is new, so the function's assumptions about its inputs (indices in range, positive numbers)
still hold. Only keys are new: a batch of them is split from the given key.

static: an argument static, or traced, over a list of its values: programs, what they cost, and the run time with each
value. A static argument is part of the program: XLA can make more of it, and each new value costs a compilation. A
traced one is data: one program serves all values, but Python cannot branch on it, loop over it or make a shape of it.

shapes: inputs of many sizes, each with its own program, all padded to the largest, or padded to powers of two. Whether
padding is right is not assumed: the useful part of the outputs is compared with that of the exact size. A sum over
zeros is right, a mean is not, and needs a mask. Times are of the jitted call alone, on inputs that are padded already;
padding with zeros and cutting the outputs come on top.

alignment: sizes around one size: one less, one more, padded to a multiple of 128, padded to a power of two. Hardware
runs some sizes faster than others; this variant measures which sizes, and by how much. Each size is paired with the
size in question, and its time is divided by the number of useful entries. With padding, these are the entries of the
size in question.

vmap: a function of one example over batches: Python loop, `vmap`, `jit(vmap)`, `vmap(jit)`; throughput by batch size.
The four are compared with each other at up to three of the sizes, and all outputs are compared with the loop's.
`jit(vmap)` runs at every size, each paired with the previous one. The knee is the smallest batch size from which no
larger one raises the throughput by more than 10 %. If throughput still grows by more at the last step, there is no
knee. x+w=1..256 names the arguments that get a batch axis, and its sizes.

in_axes: `vmap` over some arguments with the others shared (`in_axes=None`), against copies of these for each example.
The copies are made before the clock starts: what is compared is reading one array often with reading many arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from operator import mul
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.functions import (
    CallArguments,
    argument_name,
    arguments,
    change_arrays,
    dynamic_arguments,
    every_argument,
    find_arguments,
)
from benchax.experiments.lab import ChangedCase, Counted, Observation, Pair, WorkerLab
from benchax.experiments.variant import (
    BASELINE_OF_GROUP,
    Asked,
    Axis,
    Measure,
    add_comparison,
    array_leaves,
    failed_row,
    measure_ways,
    saved_s,
    uncompared,
    wrong_row,
)
from benchax.grouping import group_by
from benchax.measuring.inputs import make_inputs, map_dynamic
from benchax.measuring.state import is_carried
from benchax.model import Comparison, Estimate
from benchax.results.experiment import Curve, Facts, Point, VariantRow, point_at
from benchax.stats.intervals import median_interval
from benchax.units import count, percent, plural, rate, seconds
from benchax.units import size as bytes_text

LOOKS = (2, 3)
"""A sweep has many pairs, so each has two processes, or three where they do not settle it."""


def reading(*sides: tuple[Comparison | None, str]) -> Estimate | None:
    """Returns the time of one function in these pairs, where it is the "baseline" or the "candidate": the median of the
    medians of its blocks, with the 95 % interval."""
    medians = [
        median(block.baseline_s if half == "baseline" else block.candidate_s)
        for c, half in sides
        if c is not None
        for block in c.blocks
    ]
    if not medians:
        return None
    low, high = median_interval(medians) or (None, None)
    return Estimate(median(medians), low, high)


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
        # All but the first and the last ran in two pairs: with the one before and with the one after.
        own = reading((found.get(label), "candidate"), (above, "baseline"))
        if own is None:
            listed.append(Point(size, label, None, facts=(("not measured:", failure(found.get(label) or above)),)))
        else:
            listed.append(point_at(size, label, own, facts(size, own.value)))
    return tuple(listed)


def failure(c: Comparison | None) -> str:
    if c is None:
        return "it had no partner to be measured with"
    return c.failure.message if c.failure else c.why


def in_words(c: Comparison) -> str:
    """2.10 µs → 1.10 µs: faster, 1.9× (1.8 – 2.0)"""
    if c.failure is not None:
        return f"failed: {c.failure.message}"
    if c.baseline_value is None or c.candidate_value is None or c.estimate is None:
        return f"unclear: {c.why}"
    times = f"{seconds(c.baseline_value)} → {seconds(c.candidate_value)}"
    if c.verdict in ("faster", "slower"):
        how = f"; {c.why}" if c.is_by_cpu_time else ""
        return f"{times}: {c.verdict}, {c.estimate.map(lambda ratio: 1 / ratio).text(unit='×')}{how}"
    return f"{times}: {c.verdict}{f' ({c.why})' if c.why else ''}"


# ---- inputs of other sizes ----------------------------------------------------------------------------------------


def resized(case: Case, seed: int, axes: Sequence[Axis], size: int, padded: int | None = None) -> CallArguments:
    """The inputs with some axes of `size`, cropped or repeated, and `padded` with zeros at their ends."""

    def resize(key: int | str, leaf: Any) -> Any:
        for argument, axis in axes:
            if argument == key:
                leaf = jnp.take(leaf, jnp.arange(size) % leaf.shape[axis], axis=axis)
                more = [(0, (padded or size) - n if i == axis else 0) for i, n in enumerate(leaf.shape)]
                leaf = jnp.pad(leaf, more)
        return leaf

    return change_arrays(make_inputs(case, seed), resize)


def batched(case: Case, seed: int, keys: Collection[int | str], size: int, *, is_spread: bool = False) -> CallArguments:
    """The dynamic arguments by position; those in `keys` with a batch axis of `size` in front.

    Args:
        is_spread: the others have one too, all entries equal.
    """

    def batch(key: int | str, leaf: Any) -> Any:
        if not is_carried(leaf) or not (key in keys or is_spread):
            return leaf
        array = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)  # a number of Python has no axis
        return _batch(array, size) if key in keys else jnp.broadcast_to(array, (size, *array.shape)).copy()

    inputs = make_inputs(case, seed)
    args, kwargs = map_dynamic(
        lambda key, tree: jax.tree.map(partial(batch, key), tree), (inputs.args, inputs.kwargs), inputs.static
    )
    return tuple(dynamic_arguments(replace(inputs, args=args, kwargs=dict(kwargs))).values()), {}


def _batch(leaf: Any, size: int) -> Any:
    """Example k is the one that was given, its values shifted by k places: alike, and all different."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        split = jax.vmap(lambda key: jax.random.split(key, size), out_axes=1)(leaf.reshape(-1))
        return split.reshape(size, *leaf.shape)
    # Use shifted copies of the existing values. New random values could be invalid indices, or negative although the
    # function needs positive ones.
    places = (jnp.arange(leaf.size)[None, :] + jnp.arange(size)[:, None]) % max(1, leaf.size)
    return leaf.reshape(-1)[places].reshape(size, *leaf.shape)


def with_value(case: Case, argument: int | str, value: Any) -> CallArguments:
    """The inputs with another value of one argument."""
    args, kwargs = case.inputs()
    if isinstance(argument, str):
        return args, {**kwargs, argument: value}
    return (*args[:argument], value, *args[argument + 1 :]), kwargs


# ---- static arguments -----------------------------------------------------------------------------------------------

TRACED, STATIC = "traced", "static"


def measure_static(asked: Asked) -> Measure:
    text, listed = asked.halves()
    chosen = asked.values(listed)
    fn = asked.plain.fn
    # This includes an argument that is already static.
    permitted = {argument_name(fn, key): key for key in every_argument(asked.inputs)}
    (key,) = find_arguments(asked.variant.name, [text], permitted)
    label, case = argument_name(fn, key), asked.plain
    # It may have been declared by its position or by its name.
    others = tuple(one for one in case.static if one not in (key, label))
    names = [f"{label}={value!r}" for value in chosen]
    # Both fed by one factory.
    traced = [replace(case, inputs=partial(with_value, case, key, value), static=others) for value in chosen]
    static = [replace(one, static=(*others, key)) for one in traced]

    def measure(lab: WorkerLab) -> tuple[VariantRow, ...]:
        found = lab.count_programs({TRACED: traced, STATIC: static})
        times: dict[str, Comparison] = {}
        if not any(one.failure or one.disagreement for one in found.values()):
            each = zip(names, traced, static, strict=True)
            times = lab.time_pairs([Pair(name, TRACED, a, STATIC, b) for name, a, b in each], LOOKS)
        failed = [way for way, one in found.items() if one.failure]
        why = f"{' and '.join(failed)} it fails, so there are no two times to compare" if failed else ""
        return (
            _static_row(VariantRow("static: traced", f"{label} traced"), names, found[TRACED], {}, ""),
            _static_row(VariantRow("static", f"{label} static"), names, found[STATIC], times, why),
        )

    return measure


def _static_row(
    row: VariantRow, names: Sequence[str], one: Counted, times: Mapping[str, Comparison], why: str
) -> VariantRow:
    cost = f", which cost {seconds(one.lost_s)}" if one.programs else ""
    programs = f"{plural(one.programs, 'program')} for {plural(len(one.calls), 'value')}{cost}"
    by_verdict = group_by(times, lambda name: "failed" if times[name].failure else times[name].verdict)
    verdicts = [f"{verdict} for {', '.join(labels)}" for verdict, labels in by_verdict.items()]
    new = [f"{name}: {seconds(call.lost_s)}" for name, call in zip(names, one.calls, strict=False) if call.programs]
    facts = [("first calls took, beyond second ones", ", ".join(new))] if new else []
    facts += [(name, in_words(c) + _pays_off(one, c)) for name, c in times.items()]
    reason = why or ("value by value, below" if times else f"the row {STATIC!r} is compared with it")
    return _counted_row(replace(row, facts=tuple(facts)), one, reason, "; ".join([programs, *verdicts]))


def _counted_row(row: VariantRow, one: Counted, reason: str, sentence: str, mistake: str = "") -> VariantRow:
    """The row of calls: failed, wrong for the reason `mistake`, or without one comparison for all of them."""
    if one.failure is not None:
        row = failed_row(row.name, row.title, one.failure)
        return replace(row, facts=(("what to do", one.failure.advice),) if one.failure.advice else ())
    if one.disagreement:
        return wrong_row(row, mistake + one.disagreement)
    return uncompared(row, reason, sentence)


def _pays_off(one: Counted, c: Comparison) -> str:
    """From how many calls on a program for one value pays, by what it saves in a call."""
    if c.verdict != "faster" or not c.ratio or not c.baseline_value or not one.programs:
        return ""
    calls = math.ceil(one.lost_s / one.programs / saved_s(c, c.ratio))
    return f"; a separate program pays after about {count(calls)} calls with this value"


# ---- inputs of many sizes -------------------------------------------------------------------------------------------

EXACT, PADDED, BUCKETED = "exact", "padded", "bucketed"
SHAPE_TITLES = {
    EXACT: "each size with its own program",
    PADDED: "all padded to the largest",
    BUCKETED: "padded to powers of two",
}


def measure_shapes(asked: Asked) -> Measure:
    text, listed = asked.halves()
    sizes = asked.sizes(listed)
    make = partial(resized, asked.plain, asked.seed, asked.axes(text))
    # The size to which each one is padded, by way.
    padded = {
        EXACT: {size: size for size in sizes},
        PADDED: dict.fromkeys(sizes, max(sizes)),
        BUCKETED: {size: bucket(size) for size in sizes},
    }
    ways = {
        way: {size: replace(asked.plain, inputs=partial(make, size, to)) for size, to in one.items()}
        for way, one in padded.items()
    }
    labels = [f"{text}={size}" for size in sizes]

    def measure(lab: WorkerLab) -> Sequence[VariantRow | Curve]:
        found = lab.count_programs({way: list(cases.values()) for way, cases in ways.items()})
        is_usable = found[EXACT].failure is None
        # The two ways to pad, besides the exact size, if they really pad and the results are right.
        pairs = {
            way: {size: Pair(f"{way} {size}", EXACT, ways[EXACT][size], way, ways[way][size]) for size in sizes
                  if padded[way][size] != size}
            for way in ways
            if is_usable and found[way].failure is None and not found[way].disagreement
        }  # fmt: skip
        listed = [pair for one in pairs.values() for pair in one.values()]
        times = lab.time_pairs([*ladder(labels, list(ways[EXACT].values())), *listed], LOOKS)
        rows: list[VariantRow] = []
        for way, one in found.items():
            own = {size: times[pair.name] for size, pair in pairs.get(way, {}).items()}
            facts = tuple((f"{text}={size}", in_words(c)) for size, c in own.items())
            programs = f"{plural(one.programs, 'program')} for {len(sizes)} sizes"
            lost = f"which cost {seconds(one.lost_s)} in first calls"
            waste = _describe_waste(padded[way], found[EXACT], one) if way != EXACT else ""
            sentence = "; ".join(filter(None, (f"{programs}, {lost}", waste)))
            reason = "size by size, below" if own else "the baseline of the others, where they pad"
            row = VariantRow(f"shapes: {way}", SHAPE_TITLES[way], facts=facts)
            mistake = "zeros at the end change the useful part, so it needs a mask: "
            rows.append(_counted_row(row, one, reason, sentence, mistake))
        if not is_usable:
            return rows
        along = points(sizes, labels, times, lambda size, s: (("per entry:", seconds(s / size)),))
        return (*rows, Curve("shapes", f"time by the size of {text}, exact", text, along))

    return measure


def bucket(size: int) -> int:
    """The power of two that holds it."""
    return 1 << (size - 1).bit_length()


def _describe_waste(padded: Mapping[int, int], exact: Counted, one: Counted) -> str:
    """Operations on padding, as counted in the programs."""
    if exact.failure or one.failure:
        return ""
    programs = {to: call.flops for to, call in zip(padded.values(), one.calls, strict=True) if call.programs}
    needed, spent = [call.flops for call in exact.calls], [programs.get(to) for to in padded.values()]
    if None in needed or None in spent or not sum(n or 0 for n in needed):
        return "wasted operations not known: some can't be counted"
    more = sum(s or 0 for s in spent) / sum(n or 0 for n in needed) - 1
    return f"{percent(more)} more operations than needed" if more > 0 else ""


# ---- sizes around one size ------------------------------------------------------------------------------------------

LANES = 128
"""The multiple: a TPU's vectors have as many lanes; tiles of GPUs and vectors of CPUs divide it."""


def measure_alignment(asked: Asked) -> Measure:
    text, listed = asked.halves()
    over = asked.axes(text or next(iter(arguments(asked.plain, asked.inputs)), ""))
    argument, axis = over[0]
    own = array_leaves(every_argument(asked.inputs)[argument])[0].shape[axis]
    found = (own,) if listed is None else asked.sizes(listed)
    if len(found) != 1:
        raise UsageError(f"{asked.variant.name} is given {listed!r}", "one size; those around it are added")
    (own_size,) = found
    useful = around(own_size)
    make = partial(resized, asked.plain, asked.seed, over)
    # Padded inputs hold zeros beyond the real size, as in practice.
    cases = {size: replace(asked.plain, inputs=partial(make, real, size)) for size, real in useful.items()}
    others = [size for size in useful if size != own_size]
    pairs = [Pair(str(size), str(own_size), cases[own_size], str(size), cases[size]) for size in others]

    def measure(lab: WorkerLab) -> tuple[Curve]:
        found = lab.time_pairs(pairs, LOOKS)
        taken = {size: reading((found[str(size)], "candidate")) for size in others}
        taken[own_size] = reading(*((c, "baseline") for c in found.values()))
        points = tuple(
            _useful_point(size, useful[size], taken[size], found.get(str(size)), own_size) for size in sorted(useful)
        )
        # For the user, the padded call does the same work, and the paired comparisons show its time.
        padded = ((size, found[str(size)]) for size in targets(own_size))
        said = [f"padded to {size}: {c.verdict}" for size, c in padded if not c.failure]
        sentence = f"next to {own_size}, {'; '.join(said)}; padding itself is not in the times" if said else ""
        return (Curve("alignment", f"time around {text}={own_size}", text or "size", points, sentence=sentence),)

    return measure


def _useful_point(size: int, useful: int, taken: Estimate | None, c: Comparison | None, own_size: int) -> Point:
    if taken is None:
        return Point(size, str(size), None, facts=(("not measured:", failure(c)),))
    each = seconds(taken.value / useful)
    if c is not None and c.estimate is not None:
        # The paired ratio of the calls, for each useful entry.
        share = c.estimate.map(lambda ratio: ratio * own_size / useful)
        each += f", {share.text(unit='×')} of that at {own_size}"
    label = f"{size} (padded)" if useful != size else str(size)
    return point_at(size, label, taken, (("per useful entry:", each),))


def around(size: int) -> dict[int, int]:
    """Each size, and how many of its entries are of use; the one in question first."""
    nearby = {size: size} | ({size - 1: size - 1} if size > 1 else {}) | {size + 1: size + 1}
    return nearby | {padded: size for padded in targets(size) if padded not in nearby}


def targets(size: int) -> tuple[int, ...]:
    """Returns the sizes to pad to."""
    return tuple(sorted({-(-size // LANES) * LANES, bucket(size)} - {size}))


# ---- batches of examples --------------------------------------------------------------------------------------------

LOOP, JIT_VMAP, VMAP_JIT = "vmap: loop", "vmap: jit(vmap)", "vmap: vmap(jit)"
TITLES = {
    LOOP: "a Python loop over the examples, not jitted",
    "vmap: eager": "vmap(f)",
    JIT_VMAP: "jit(vmap(f))",
    VMAP_JIT: "vmap(jit(f))",
}
ORDER = "vmap(jit) next to jit(vmap)"
LEAST_GAIN = 1.1
"""The throughput that a larger batch must have, to the knee's. This defines the knee
(docs/how-to/experiments-structure.md)."""


class Batching(NamedTuple):
    """The arguments that get a batch axis, and its sizes."""

    alone: Case
    """A function of the dynamic arguments alone, by position."""
    is_named: bool
    """Were arguments named? Otherwise all get a batch axis."""
    is_mapped: tuple[bool, ...]
    """Whether each argument of `alone` gets one."""
    inputs: dict[int, Callable[..., CallArguments]]
    """By size. One factory for each: then the sides of a pair are given the same arrays."""

    @property
    def in_axes(self) -> tuple[int | None, ...]:
        """The batch axis of each argument, in front; None: the argument is shared."""
        return tuple(0 if mapped else None for mapped in self.is_mapped)


def read_batching(asked: Asked) -> Batching:
    """Reads what the variant is given.

    Raises:
        UsageError: an argument that does not exist, or an invalid size.
        NotAvailable: the function under the jit cannot be reached.
    """
    case, seed, permitted = asked.plain, asked.seed, arguments(asked.plain, asked.inputs)
    text, listed = asked.halves()
    sizes = asked.sizes(listed)
    keys = asked.arguments(text.split("+") if text else permitted)
    is_mapped = tuple(key in keys for key in permitted.values())
    fn, dynamic, count = case.fn, tuple(permitted.values()), len(asked.inputs.args)
    fixed = {key: value for key, value in every_argument(asked.inputs).items() if key in asked.inputs.static}

    def alone(*values: Any) -> Any:
        given = {**fixed, **dict(zip(dynamic, values, strict=True))}
        named = {key: value for key, value in given.items() if isinstance(key, str)}
        return fn(*(given[i] for i in range(count)), **named)

    made = {size: partial(batched, case, seed, keys, size) for size in sizes}
    return Batching(replace(case, fn=alone, static=(), donate=()), bool(text), is_mapped, made)


def _loop_over(fn: Callable[..., Any], is_mapped: tuple[bool, ...], size: int, *args: Any) -> Any:
    """One call for each example, and the outputs stacked."""

    def example(i: int, tree: Any, is_mapped: bool) -> Any:
        return jax.tree.map(lambda leaf: leaf[i], tree) if is_mapped else tree

    outputs = [fn(*(example(i, *pair) for pair in zip(args, is_mapped, strict=True))) for i in range(size)]
    return jax.tree.map(lambda *each: jnp.stack(each), *outputs)


def measure_vmap(asked: Asked) -> Measure:
    read = read_batching(asked)
    sizes = list(read.inputs)
    beside = beside_each_other(sizes)
    labels = [f"batch {size}" for size in sizes]
    ways = {size: _ways(read, size) for size in sizes}
    pairs = ladder(labels, [ways[size][JIT_VMAP] for size in sizes])
    pairs += [pair for size in beside for pair in _four(size, ways[size])]

    def measure(lab: WorkerLab) -> Sequence[VariantRow | Curve]:
        found = lab.time_pairs(pairs, LOOKS)
        if len(sizes) == 1:  # no ladder: it ran beside the loop
            found = {**found, labels[0]: found[_name(JIT_VMAP, sizes[0])]}
        return (*_batch_rows(beside, found), _batch_curve(sizes, labels, found))

    return measure


def _ways(read: Batching, size: int) -> dict[str, Case]:
    case = replace(read.alone, inputs=read.inputs[size])
    vmapped = jax.vmap(case.fn, read.in_axes)
    return {
        LOOP: replace(case, fn=partial(_loop_over, case.fn, read.is_mapped, size), jit=False),
        "vmap: eager": replace(case, fn=vmapped, jit=False),
        JIT_VMAP: replace(case, fn=vmapped, jit=True),
        VMAP_JIT: replace(case, fn=jax.vmap(jax.jit(case.fn), read.in_axes), jit=False),
    }


def beside_each_other(sizes: Sequence[int]) -> list[int]:
    """The first, the middle and the last: a Python loop over many examples takes its time."""
    return sorted({sizes[0], sizes[len(sizes) // 2], sizes[-1]})


def _name(way: str, size: int) -> str:
    return f"{way}, batch {size}"


def _four(size: int, ways: Mapping[str, Case]) -> list[Pair]:
    others = [Pair(_name(name, size), LOOP, ways[LOOP], name, case) for name, case in ways.items() if name != LOOP]
    return [*others, Pair(_name(ORDER, size), JIT_VMAP, ways[JIT_VMAP], VMAP_JIT, ways[VMAP_JIT])]


def _batch_rows(beside: Sequence[int], found: Mapping[str, Comparison]) -> list[VariantRow]:
    """The rows are about the largest size; the other sizes are facts."""
    rows = [uncompared(VariantRow(LOOP, TITLES[LOOP]), BASELINE_OF_GROUP, BASELINE_OF_GROUP)]
    for name in list(TITLES)[1:]:
        row = _judge_batch(name, found[_name(name, beside[-1])], beside[-1])
        facts = [(f"batch {size}", in_words(found[_name(name, size)])) for size in beside[:-1]]
        if name == VMAP_JIT:
            facts += [(f"{ORDER}, batch {size}", in_words(found[_name(ORDER, size)])) for size in beside]
        rows.append(replace(row, facts=tuple(facts)))
    return rows


def _batch_curve(sizes: Sequence[int], labels: Sequence[str], found: Mapping[str, Comparison]) -> Curve:
    # The factor of the throughput, and the factor of the batch.
    estimates = [getattr(found.get(label), "estimate", None) for label in labels[1:]]
    factors = [b / a for a, b in pairwise(sizes)]
    gains = [e and e.map(lambda ratio, f=f: f / ratio) for e, f in zip(estimates, factors, strict=True)]
    gained = dict(zip(sizes[1:], zip(sizes, gains, strict=False), strict=True))

    def facts(size: int, seconds: float) -> Facts:
        before, gain = gained.get(size, (0, None))
        paired = f", {gain.text(unit='×')} as much as with {before}, in pairs" if gain else ""
        return (("throughput:", rate(size / seconds, "examples") + paired),)

    listed = points(sizes, labels, found, facts)
    at = knee(sizes, [gain.value if gain else None for gain in gains])
    return Curve("vmap", "jit(vmap) by batch size", "batch size", listed, at, _describe_gains(sizes, gains, at))


def _judge_batch(name: str, c: Comparison, size: int) -> VariantRow:
    """Judges a batch against the loop. Outputs of a pair are compared whenever both have run."""
    row = add_comparison(VariantRow(name, TITLES[name]), c, VariantRow(LOOP, TITLES[LOOP]))
    return replace(row, sentence=f"batch {size}, next to the loop: {row.sentence}") if row.status == "ok" else row


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
        # Several small gains can add up to a large one.
        if max(accumulate((gain or 0.0 for gain in gains[i:]), mul)) <= LEAST_GAIN:
            return size
    return None


def _describe_gains(sizes: Sequence[int], gains: Sequence[Estimate | None], at: int | None) -> str:
    if not gains:
        return ""
    if None in gains:
        return "a step could not be measured, so there is no knee"
    last = gains[-1]
    if at is None and last is not None:
        more = last.map(lambda gain: gain - 1).text(percent)
        return f"throughput still grew at the last step, by {more}: there is no knee up to {sizes[-1]}"
    return f"knee at {at}: no larger batch raises the throughput by more than {percent(LEAST_GAIN - 1)}"


# ---- shared arguments -----------------------------------------------------------------------------------------------

COPIED, SHARED = "in_axes: copied", "in_axes"


def measure_in_axes(asked: Asked) -> Measure:
    read = read_batching(asked)
    if not read.is_named or len(read.inputs) != 1:
        raise UsageError(
            f"in_axes is given {len(read.inputs)} sizes"
            if read.is_named
            else f"in_axes is given {asked.given!r}, which names no argument with a batch axis",
            f"some of {', '.join(arguments(asked.plain, asked.inputs))}, and one size: in_axes=x=64",
            "vmap without in_axes= takes the first axis of every argument for the batch",
        )
    if all(read.is_mapped):
        raise NotAvailable("every argument has a batch axis, so that none is shared")
    fn, (inputs,) = read.alone.fn, read.inputs.values()
    copied = replace(read.alone, fn=jax.vmap(fn), inputs=partial(inputs, is_spread=True))
    shared = replace(read.alone, fn=jax.vmap(fn, read.in_axes), inputs=inputs)
    changed = ChangedCase(shared, facts=lambda before, now, c: _input_facts(now))
    ways = {SHARED: ("shared, in_axes=None", lambda: changed)}
    title = "copies for each example"
    return lambda lab: measure_ways(COPIED, title, copied, ways, lab, LOOKS, _input_facts)


def _input_facts(seen: Observation) -> Facts:
    held = seen.plan.argument_bytes
    return (("inputs", seen.signature), *((("input bytes", bytes_text(held)),) if held is not None else ()))
