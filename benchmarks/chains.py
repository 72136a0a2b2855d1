"""What a function costs by a chain made by hand: the yardstick of `census.py`. No timer of benchax is used.

One jitted program runs the function n/2 times in a loop, and 3n/2 times; the answer is (T(3n/2) - T(n/2)) / n, less the
same of a chain that has only the ties: it carries outputs that are there already. (T(n) - T(0) would hold the first
trip, whose data no cache has after other programs: 5 to 15 % of 0.6 ms.) In each trip

    an input    depends on an output of the trip before: the bits of one element of an output, taken AND with a zero
                that is an operand (so XLA cannot know it), are XORed into one element of an input. The data stay what
                they are to the bit, also beside infinities and NaN, and XLA updates the element in place. One input is
                enough, since the work is a call that stays whole, and one that is as small as can be: ties of all
                inputs and outputs cost training steps, which have a dozen of each, a quarter more than they take;
    the work    stands in a call that XLA is told not to inline. XLA hoists out of loops what does not depend on the
                inputs (iota, tables, a fixed key), but not out of calls. (A branch of a `lax.cond` keeps it too, and is
                what the timers use; the yardstick should stand on something else.)
    the program is the function's own, exported: its constants stand inside the call as they do in the function
                alone, and XLA folds there what it folds alone. Outputs that are inputs (JAX runs nothing for them)
                are left out.

This is checked: the chain must have just the costly operations (dots, sines, sorts, loops, custom calls, ...) of the
function alone, and a trip may copy neither more nor less than the function does (LAPACK wants other layouts than XLA
has at the edge of a call; a convolution whose 4,120 elements are copied takes 165 µs alone, and 6 in a loop that has
them in place), else it is no yardstick (`NoChain`).

A loop runs the same code each time, as repeated calls do. Straight-line copies of it take up to five times as long
(kvaerno3 of diffrax: 107 µs a copy, 21 µs a trip): their code is in no cache, and no branch in it was ever predicted.

Where it errs. The ties cost 0.1 to 0.5 µs a trip; `tie_s` is that cost, which is subtracted. Inputs are in cache from
the trip before, as in repeated calls. Outputs are written into a buffer of the program that is used again, so that page
faults of newly allocated outputs, which calls may pay above about 128 KiB, are not in it.

    python benchmarks/chains.py      compares chains with functions of known duration
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from math import prod
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.experimental.xla_metadata import set_xla_metadata

TARGET_NS = 600_000
"""How long n trips should take: the jitter of a call, some 5 µs between least readings, is a percent of it."""
MOST_TRIPS = 4096
COSTLY = re.compile(
    r" (dot|convolution|fft|sort|reduce|reduce-window|scatter|gather|while|conditional|custom-call|topk|cholesky|"
    r"triangular-solve|sine|cosine|tan|tanh|exponential|exponential-minus-one|log|log-plus-one|power|erf|rsqrt|sqrt|"
    r"cbrt|logistic|atan2|divide|remainder)\("
)


COPIED = re.compile(r" = \w+\[([\d,]*)\]\S* (?:copy|transpose)\(")
MOST_COPIED = 64
"""Elements, beyond what the function copies: counters and ties."""


class NoChain(Exception):
    """The function cannot be put into a chain, and why."""


class Readings(NamedTuple):
    """Nanoseconds of each program."""

    few: list[int]
    """n/2 trips."""
    many: list[int]
    """3n/2 trips."""
    tie_few: list[int]
    tie_many: list[int]
    floor: list[int]
    """A call that takes the same inputs and fills the same outputs with one number, on XLA's own thread."""

    def per_trip_s(self, trips: int, pick: Callable[[list[int]], float] = min) -> float:
        """Seconds of the function, by the least readings or by medians; the ties by their least ones."""
        return (pick(self.many) - pick(self.few)) / trips * 1e-9 - self.tie_s(trips)

    def tie_s(self, trips: int) -> float:
        return max(0, min(self.tie_many) - min(self.tie_few)) / trips * 1e-9

    @property
    def floor_s(self) -> float:
        return median(self.floor) * 1e-9


def join(visits: Iterable[Readings]) -> Readings:
    """All readings of these visits."""
    return Readings(*(list(chain.from_iterable(each)) for each in zip(*visits, strict=True)))


@dataclass(frozen=True)
class Chain:
    """The chain of one function, compiled and run."""

    run: Callable[[int], Any]
    """So many trips."""
    ties: Callable[[int], Any]
    floor: Callable[[], Any]
    trips: int

    def read(self, times: int = 5) -> Readings:
        """Each program so many times in a row, after one time that is not counted."""
        few, many = self.trips // 2, self.trips // 2 + self.trips
        programs = [lambda run=run, n=n: run(n) for run in (self.run, self.ties) for n in (few, many)]
        return Readings(*([_read(each) for _ in range(times + 1)][1:] for each in (*programs, self.floor)))


def build_chain(fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Chain:
    """The chain of calls of `fn(*args, **kwargs)`.

    Raises:
        NoChain: it cannot be chained. What `fn` raises passes through.
    """
    subject = _subject(fn, args, kwargs or {})
    run = _compiled(subject, lambda leaves, _: subject.run(leaves), subject.costly, subject.copied)
    ties = _compiled(subject, lambda _, outs: outs, Counter(), 0)
    return Chain(run, ties, _floor(subject), _find_trips(run))


def _find_trips(run: Callable[[int], Any]) -> int:
    """So many that they take about TARGET_NS more than none."""
    n, none_ns = 1, min(_read(lambda: run(0)) for _ in range(5))
    while n < MOST_TRIPS and min(_read(lambda n=n: run(n)) for _ in range(3)) - none_ns < TARGET_NS:
        n *= 2
    return n


def _read(run: Callable[[], Any]) -> int:
    begun = perf_counter_ns()
    jax.block_until_ready(run())
    return perf_counter_ns() - begun


# What is chained.


@dataclass(frozen=True)
class _Subject:
    """A function of its array leaves, inputs and outputs flat."""

    run: Callable[[list[Any]], list[Any]]
    leaves: list[jax.Array]
    shapes: list[jax.ShapeDtypeStruct]
    costly: Counter[str]
    """Operations in the optimised program of the function alone."""
    copied: int
    """Elements, there."""


def _subject(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Subject:
    leaves, tree = jax.tree.flatten((args, kwargs))
    where = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray | np.generic)]
    arrays = [jnp.asarray(leaves[i]) for i in where]

    def flat(arrays: list[Any]) -> list[Any]:
        whole = list(leaves)
        for i, array in zip(where, arrays, strict=True):
            whole[i] = array
        new_args, new_kwargs = jax.tree.unflatten(tree, whole)
        return [jnp.asarray(o) for o in jax.tree.leaves(fn(*new_args, **new_kwargs)) if _is_array(o)]

    jaxpr = jax.make_jaxpr(flat)(arrays).jaxpr
    own = [i for i, v in enumerate(jaxpr.outvars) if not any(v is inner for inner in jaxpr.invars)]
    if not own:
        raise NoChain("it computes nothing: each of its outputs is one of its inputs")

    @jax.jit
    def compute(arrays: list[Any]) -> list[Any]:
        outputs = flat(arrays)  # once: XLA would not merge all that is traced twice
        return [outputs[i] for i in own]

    exported = export.export(compute, disabled_checks=_checks(compute, arrays))(arrays)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.out_avals]
    alone = compute.lower(arrays).compile()
    return _Subject(exported.call, arrays, shapes, count_costly(alone), count_copied(alone.as_text() or ""))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex)


def _checks(compute: Any, arrays: list[Any]) -> list[Any]:
    """`jax.export` refuses custom calls that may change between versions; here nothing outlives the process."""
    names = set(re.findall(r"custom_call @([\w.$]+)", compute.lower(arrays).as_text()))
    return [export.DisabledSafetyCheck.custom_call(name) for name in sorted(names)]


def count_costly(compiled: Any) -> Counter[str]:
    """Operations of the optimised program that cost something, as often as they stand in its text."""
    return Counter(COSTLY.findall(compiled.as_text() or ""))


def count_copied(text: str) -> int:
    """Elements that copies and transpositions write, each as often as it stands in the text."""
    return sum(prod(map(int, filter(None, dims.split(",")))) for dims in COPIED.findall(text))


def _floor(subject: _Subject) -> Callable[[], Any]:
    # The loop has no trips, but makes XLA hand the program to another thread, as it does with long ones.
    @jax.jit
    def fill(leaves: list[Any], zero: Any) -> list[Any]:
        bit = lax.while_loop(lambda c: c != 0, lambda c: c + 1, zero)
        return [bit, *[_filled(shape, bit) for shape in subject.shapes]]

    zero = jnp.uint32(0)
    jax.block_until_ready(fill(subject.leaves, zero))
    return lambda: fill(subject.leaves, zero)


def _filled(shape: jax.ShapeDtypeStruct, bit: Any) -> Any:
    if jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return lax.full(shape.shape, 0, shape.dtype)
    return jnp.broadcast_to(bit.astype(shape.dtype), shape.shape)


# The chain.


Run = Callable[[list[Any], list[Any]], list[Any]]
"""(inputs, outputs of the trip before) -> outputs."""


def _compiled(subject: _Subject, run: Run, costly: Counter[str], copied: int) -> Callable[[int], Any]:
    zero, outs = jnp.uint32(0), [_filled(shape, jnp.uint32(0)) for shape in subject.shapes]
    lowered = jax.jit(lambda trips, *operands: _chain(run, trips, *operands)).lower(1, subject.leaves, outs, zero)
    # XLA:CPU makes one kernel of a small loop, so that ties alone would cost nothing. The function's own loops stay so.
    options = {} if costly["while"] else {"xla_disable_hlo_passes": "small-while-loop-hoisting"}
    program = lowered.compile(compiler_options=options)
    _check(program, costly, copied)
    return lambda trips: program(trips, subject.leaves, outs, zero)


def _check(program: Any, costly: Counter[str], copied: int) -> None:
    """Raises `NoChain` where the program does other work than the function in each trip."""
    if not re.search(r' call\([^\n]*inlineable="false"', program.as_text() or ""):
        raise NoChain("XLA has inlined the chain's call")
    found = count_costly(program) - Counter({"while": 1})
    wrong = [f"{found[name]} of its {costly[name]} {name}" for name in costly | found if found[name] != costly[name]]
    if wrong:
        raise NoChain(f"a trip of the chain has {', '.join(wrong)} operations")
    in_trips = count_copied((program.as_text() or "").partition("\nENTRY ")[0])
    if abs(in_trips - copied) > MOST_COPIED:
        raise NoChain(f"a trip of the chain copies {in_trips} elements, and the function {copied}")


def _chain(run: Run, trips: Any, leaves: list[Any], outs: list[Any], zero: Any) -> Any:
    """All that the last trip leaves behind, so that nothing of it leads nowhere."""
    tied, read = _smallest(leaves), _smallest(outs)

    def trip(_: Any, carried: tuple[list[Any], list[Any], Any]) -> tuple[list[Any], list[Any], Any]:
        outs, leaves, tie = _call(run, *carried)
        tie = jnp.uint32(0) if read is None else _bits(outs[read]) & zero
        return [_tie(leaf, tie) if i == tied else leaf for i, leaf in enumerate(leaves)], outs, tie

    return lax.fori_loop(0, trips, trip, (leaves, outs, zero))


def _smallest(arrays: list[Any]) -> int | None:
    """Which one has an element and is cheapest to get at; None where all are empty."""
    return min((i for i, array in enumerate(arrays) if array.size), key=lambda i: arrays[i].size, default=None)


def _call(run: Run, leaves: list[Any], outs: list[Any], tie: Any) -> tuple[list[Any], list[Any], Any]:
    """A call that stays one: its outputs, and the inputs again.

    The inputs pass through it because XLA would otherwise copy them before the next tie (jaxlib 0.10.2: 4 MB each
    time). `tie` is an operand for functions of no inputs, whose calls would be equal.
    """

    def call(leaves: list[Any], outs: list[Any], tie: Any) -> tuple[list[Any], list[Any], Any]:
        return run(leaves, outs), leaves, tie

    with set_xla_metadata(inlineable="false"):
        return jax.jit(call, keep_unused=True)(leaves, outs, tie)


def _tie(leaf: Any, tie: Any) -> Any:
    """`leaf` with the bits of `tie` XORed into its first element, in place."""
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(_tie(jax.random.key_data(leaf), tie), impl=jax.random.key_impl(leaf))
    if leaf.size == 0:
        return leaf
    first = (0,) * leaf.ndim
    return leaf.at[first].set(_xor(leaf[first], tie), mode="promise_in_bounds")


def _xor(x: Any, tie: Any) -> Any:
    if x.dtype == bool:
        return x ^ (tie != 0)
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return lax.complex(_xor(x.real, tie), x.imag)
    bits = _unsigned(x.dtype)
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, bits) ^ tie.astype(bits), x.dtype)


def _bits(out: Any) -> Any:
    """Some bits of one element of `out`, as u32."""
    if jax.dtypes.issubdtype(out.dtype, jax.dtypes.prng_key):
        out = jax.random.key_data(out)
    if out.size == 0:
        return jnp.uint32(0)
    x = out[(0,) * out.ndim]
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        x = x.real
    return (x if x.dtype == bool else lax.bitcast_convert_type(x, _unsigned(x.dtype))).astype(jnp.uint32)


def _unsigned(dtype: Any) -> Any:
    return jnp.dtype(f"uint{8 * jnp.dtype(dtype).itemsize}")


def main() -> None:
    from report import header, table
    from spin import spin

    header("chains: functions of known duration")
    rows = []
    for us in (1, 10, 100, 1000):
        yardstick = build_chain(spin(us), (jnp.float32(1),))
        deadline, visits = perf_counter() + 1, list[Readings]()
        while perf_counter() < deadline:
            visits.append(yardstick.read())
        found = join(visits)
        seconds = [found.per_trip_s(yardstick.trips), found.per_trip_s(yardstick.trips, median), found.floor_s]
        rows.append([f"{us} µs", str(yardstick.trips), str(len(visits)), *[f"{s * 1e6:.3f}" for s in seconds]])
    table(["true", "n", "visits", "by least", "by median", "floor"], rows)


if __name__ == "__main__":
    main()
