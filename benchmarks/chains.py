"""What a function costs by a chain made by hand: the yardstick of `census.py`. No timer of benchax is used.

One jitted program runs the function n times in straight-line code, a second one 2n times; the answer is
(T(2n) - T(n)) / n, less the same of a chain that has only the ties. In each copy

    the inputs  depend on the outputs of the copy before: the bits of one element of each output, taken AND with a
                zero that is an operand (so XLA cannot know it), are XORed into one element of each input. The data
                stay what they are to the bit, also beside infinities and NaN, and XLA updates the element in place;
    the work    stands in a call that XLA is told not to inline. XLA merges equal operations within a computation and
                hoists them out of loops, but not out of calls, so that work which does not depend on the inputs
                (iota, tables, a fixed key) is done n times. (A branch of a `lax.cond` does that too, and is what the
                timers use; the yardstick should stand on something else.)
    the program is the function's own, exported: its constants stand inside the call as they do in the function
                alone, and XLA folds there what it folds alone. Outputs that are inputs (JAX runs nothing for them)
                are left out.

This is checked: the optimised chain must have the n calls, and n times the costly operations (dots, sines, sorts,
loops, custom calls, ...) of the function alone. Fewer make `NoChain`; more become a remark.

Where it errs. The ties cost 0.1 to 0.5 µs a copy; `tie_s` is that cost, which is subtracted, and a quarter of it is
added to the band. Inputs are in cache from the copy before, as in repeated calls. Outputs are written into a buffer of
the program that is used again, so that page faults of newly allocated outputs, which calls may pay above about
128 KiB, are not in it. XLA may choose other layouts at the edge of the call. A busy machine lengthens the median; the
least readings then say more.

    python benchmarks/chains.py      compares chains with functions of known duration
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from statistics import median
from time import perf_counter, perf_counter_ns, process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.experimental.xla_metadata import set_xla_metadata

from benchax.stats.intervals import median_interval

TARGET_S = 300e-6
"""How long n copies should take together: the jitter of a call, about 1 µs, is then below 1 % of it."""
LEAST_COPIES, MOST_COPIES = 2, 32
FIXED_BUILD_S = 0.02
"""Of compiling, whatever is compiled; the rest grows with the copies."""
COSTLY = re.compile(
    r" (dot|convolution|fft|sort|reduce|reduce-window|scatter|gather|while|conditional|custom-call|topk|cholesky|"
    r"triangular-solve|sine|cosine|tan|tanh|exponential|exponential-minus-one|log|log-plus-one|power|erf|rsqrt|sqrt|"
    r"cbrt|logistic|atan2|divide|remainder|dynamic-update-slice)\("
)
TIE_DOUBT = 0.25
"""Share of the ties' cost that is added to the band: next to real work they may cost less or more than alone."""


class NoChain(Exception):
    """The function cannot be put into a chain, and why."""


@dataclass(frozen=True)
class ChainTime:
    """Seconds per call by the chain. `low_s` and `high_s`: the 95 % interval of the median and the least, whichever is
    further, widened by the ties' doubt."""

    copies: int
    rounds: int
    median_s: float
    least_s: float
    """From the least readings of either length: what a quiet machine would give, if it was quiet for two calls."""
    low_s: float
    high_s: float
    tie_s: float
    """What ties and conditional cost; already subtracted."""
    floor_s: float
    """Median of a call that takes the same inputs and fills the same outputs with one number, on XLA's own thread."""
    remark: str = ""
    """How the chain's program differs from the function's own."""


@dataclass(frozen=True)
class _Subject:
    """A function of its array leaves, inputs and outputs flat."""

    run: Callable[[list[Any]], list[Any]]
    leaves: list[jax.Array]
    shapes: list[jax.ShapeDtypeStruct]
    call: Callable[[], Any]
    build_s: float
    costly: Counter[str]
    """Operations in the optimised program of the function alone."""


@dataclass(frozen=True)
class Chain:
    """The programs of one function, compiled and run once. `read` them in turns, then `estimate`."""

    programs: Sequence[Callable[[], Any]]
    """n copies, 2n copies, n and 2n copies of the ties alone, a call that fills the outputs."""
    copies: int
    remark: str

    def read(self, order: Iterable[int] = range(5)) -> dict[int, int]:
        """Nanoseconds of each program, once."""
        return {i: _read(self.programs[i]) for i in order}

    def estimate(self, readings: Sequence[Sequence[int]]) -> ChainTime:
        """Of the nanoseconds of each program, in the order taken."""
        return _estimate(readings, self.copies, self.remark)


def build_chain(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    copies: int | None = None,
    compile_s: float = 4.0,
) -> Chain:
    """The chain of calls of `fn(*args, **kwargs)`.

    Args:
        copies: n; default: as many as take 300 µs together, and fewer where compiling would take too long.
        compile_s: about what compiling the 3n copies may take.

    Raises:
        NoChain: it cannot be chained. What `fn` raises passes through.
    """
    subject = _subject(fn, args, kwargs or {})
    n = copies or _copies(_least_s(subject.call), subject.build_s, compile_s)
    chains = [_Chain(subject, subject.run, k, subject.costly) for k in (n, 2 * n)]
    ties = [_Chain(subject, _nothing(subject), k, Counter()) for k in (n, 2 * n)]
    return Chain([*chains, *ties, _floor(subject)], n, chains[1].remark)


def chain_time(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    *,
    copies: int | None = None,
    seconds: float = 0.6,
) -> ChainTime:
    """What `fn(*args, **kwargs)` takes in a chain of its own calls, by readings of so many seconds.

    Raises:
        NoChain: it cannot be chained. What `fn` raises passes through.
    """
    chain = build_chain(fn, args, kwargs, copies=copies)
    readings: list[list[int]] = [[] for _ in range(5)]
    deadline = perf_counter() + seconds
    while len(readings[0]) < 15 or (perf_counter() < deadline and len(readings[0]) < 2000):
        order = range(5) if len(readings[0]) % 2 else reversed(range(5))
        for i, ns in chain.read(order).items():
            readings[i].append(ns)
    return chain.estimate(readings)


def _estimate(readings: Sequence[Sequence[int]], n: int, remark: str) -> ChainTime:
    short, long, tie_short, tie_long, floor = [np.asarray(r[2:], float) * 1e-9 for r in readings]
    slopes = (long - short) / n
    tie_s = max(0.0, float(min(tie_long) - min(tie_short)) / n)
    low_s, high_s = median_interval(list(slopes)) or (min(slopes), max(slopes))
    least_s = float(min(long) - min(short)) / n
    doubt_s = TIE_DOUBT * tie_s + 5e-9
    return ChainTime(
        copies=n,
        rounds=len(slopes),
        median_s=median(slopes) - tie_s,
        least_s=least_s - tie_s,
        low_s=min(float(low_s), least_s) - tie_s - doubt_s,
        high_s=max(float(high_s), least_s) - tie_s + doubt_s,
        tie_s=tie_s,
        floor_s=float(median(floor)),
        remark=remark,
    )


def _copies(call_s: float, build_s: float, compile_s: float) -> int:
    wanted = round(TARGET_S / max(call_s, 1e-6))
    affordable = int(compile_s / (3 * max(build_s - FIXED_BUILD_S, 1e-3)))
    return max(LEAST_COPIES, min(wanted, affordable, MOST_COPIES))


def _read(run: Callable[[], Any]) -> int:
    begun = perf_counter_ns()
    jax.block_until_ready(run())
    return perf_counter_ns() - begun


def _least_s(run: Callable[[], Any]) -> float:
    return min(_read(run) for _ in range(9)) * 1e-9


# What is chained.


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
    compute = jax.jit(lambda arrays: [flat(arrays)[i] for i in own])
    exported = export.export(compute, disabled_checks=_checks(compute, arrays))(arrays)
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in exported.out_avals]
    begun = process_time()  # of this process: a busy neighbour must not make chains short
    alone = compute.lower(arrays).compile()
    build_s = process_time() - begun
    return _Subject(exported.call, arrays, shapes, lambda: alone(arrays), build_s, count_costly(alone))


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic | int | float | complex)


def _checks(compute: Any, arrays: list[Any]) -> list[Any]:
    """`jax.export` refuses custom calls that may change between versions; here nothing outlives the process."""
    names = set(re.findall(r"custom_call @([\w.$]+)", compute.lower(arrays).as_text()))
    return [export.DisabledSafetyCheck.custom_call(name) for name in sorted(names)]


def count_costly(compiled: Any) -> Counter[str]:
    """Operations of the optimised program that cost something, as often as they stand in its text."""
    return Counter(COSTLY.findall(compiled.as_text() or ""))


def _nothing(subject: _Subject) -> Callable[[list[Any]], list[Any]]:
    """Takes the inputs and gives as many numbers as there are outputs, at no cost."""
    return lambda leaves: [jnp.uint32(i) for i, _ in enumerate(subject.shapes)]


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


class _Chain:
    """The compiled program of `n` copies, on its operands."""

    def __init__(self, subject: _Subject, run: Callable[[list[Any]], list[Any]], n: int, costly: Counter[str]) -> None:
        self._operands = (subject.leaves, jnp.uint32(0))
        self._program = jax.jit(lambda *operands: _chain(run, n, *operands)).lower(*self._operands).compile()
        self.remark = _check(self._program, n, costly)
        self()

    def __call__(self) -> Any:
        return self._program(*self._operands)


def _check(program: Any, n: int, costly: Counter[str]) -> str:
    """How the program differs from `n` times the function; "" where it does not."""
    calls = len(re.findall(r' call\([^\n]*inlineable="false"', program.as_text() or ""))
    if calls < n:
        raise NoChain(f"XLA left {calls} of the chain's {n} calls")
    found = count_costly(program)
    fewer = [f"{found[name]} of {n * count} {name}" for name, count in costly.items() if found[name] < n * count]
    if fewer:
        raise NoChain(f"XLA left {', '.join(fewer)} operations in the chain")
    more = [
        f"{found[name] / n:.3g} {name} instead of {costly[name]}" for name in found if found[name] > n * costly[name]
    ]
    # Updates in place are the ties' own, and the first of them copies the input.
    more = [text for text in more if "dynamic-update-slice" not in text]
    return f"a copy has {', '.join(more)}" if more else ""


def _chain(run: Callable[[list[Any]], list[Any]], n: int, leaves: list[Any], zero: Any) -> Any:
    tie = zero
    for _ in range(n):
        outs, leaves = _call(run, leaves, tie)
        tie = reduce(jnp.bitwise_or, [_bits(out) for out in outs]) & zero
        leaves = [_tie(leaf, tie) for leaf in leaves]
    return tie


def _call(run: Callable[[list[Any]], list[Any]], leaves: list[Any], tie: Any) -> tuple[list[Any], list[Any]]:
    """A call that stays one: its outputs, and the inputs again.

    The inputs pass through it because XLA would otherwise copy them before the next tie (jaxlib 0.10.2: 4 MB each
    time). `tie` is an operand for functions of no inputs, whose calls would be equal.
    """
    with set_xla_metadata(inlineable="false"):
        return jax.jit(lambda leaves, tie: ([*run(leaves), tie], leaves), keep_unused=True)(leaves, tie)


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
        found = chain_time(spin(us), (jnp.float32(1),))
        cells = (found.median_s, found.least_s, found.low_s, found.high_s, found.tie_s, found.floor_s)
        rows.append([f"{us} µs", str(found.copies), str(found.rounds), *[f"{s * 1e6:.3f}" for s in cells]])
    table(["true", "n", "rounds", "median", "least", "low", "high", "tie", "floor"], rows)


if __name__ == "__main__":
    main()
