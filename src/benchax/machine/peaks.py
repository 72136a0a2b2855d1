"""The highest rates of this machine that we can reach: bytes per second in memory and in caches, FLOP/s of a matmul.

They are a scale for other programs: "70 % of the rate of memory". Each rate comes from the *fastest* repeat. For a peak
that is the right statistic, since disturbances only make a repeat slower. It is the wrong statistic for everything
else. A rate is never above a rate that was reached. It is the work over the whole time of one call, with dispatch and
wait. Calls are long enough (20 ms) that these are below 0.1 %.

Bytes are read from and written to one array in place, by a loop inside one program whose argument is donated. So no
page is touched for the first time: on CPU a program that returns a large new array is slower by that, often by half.

The rates are kept (`kept_peaks.py`) by the fingerprint of machine, device, settings and JAX. If a file cannot be read,
the rates are measured again.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter_ns
from typing import Literal

import jax
import jax.numpy as jnp

from benchax.environment import fingerprint, read_text
from benchax.errors import NotMeasured
from benchax.kept_peaks import file_of, keep_peaks, read_peaks
from benchax.model import Absent
from benchax.results.roofline import Peaks
from benchax.specs import DTYPES

MatmulType = Literal["f32", "bf16", "f64"]

CACHE_ARRAY_BYTES = 256 * 2**10
"""Fits the second cache of a core in every processor of the last ten years."""
LEAST_MEMORY_ARRAY_BYTES, MOST_MEMORY_ARRAY_BYTES = 64 * 2**20, 512 * 2**20
TIMES_LAST_CACHE = 4
"""An array this many times as large as the last cache is mostly not in it."""
_LAST_CACHE = "/sys/devices/system/cpu/cpu0/cache/index3/size"

CALL_S = 0.02
"""Least length of one timed call."""
REPEATS = 8
BUDGET_S = 0.4
"""For the repeats of one rate; the three of them take about 1.5 s, compiling included."""
MATMUL_SIZES = (512, 1024, 2048, 4096, 8192)
"""Larger ones are tried while they are faster and quick enough."""


def peaks(measure: bool = True, dtypes: Sequence[MatmulType] = ("f32",), folder: Path | None = None) -> Peaks | None:
    """Returns the rates of the first local device, from the file, or measured now.

    Args:
        measure: False: returns only kept rates; None if there are no kept rates.
        dtypes: the types of the matmuls. Missing ones are measured, and kept as well.
        folder: where the files are; default: in the user's cache folder.
    """
    path = file_of(fingerprint(), folder)
    known = read_peaks(path)
    if not measure:
        return known
    missing: list[MatmulType] = [d for d in dtypes if known is None or d not in known.matmul_flops_per_s]
    if known is not None and not missing:
        return known
    found = _measured(known, missing)
    return dataclasses.replace(found, path=str(path)) if keep_peaks(path, found) else found


def _measured(known: Peaks | None, dtypes: Sequence[MatmulType]) -> Peaks:
    """Returns `known` with its missing matmuls; measures everything if nothing is known."""
    absent: list[Absent] = []

    def attempt(what: str, rate: Callable[[], float]) -> float | None:
        try:
            return rate()
        except NotMeasured as error:
            absent.append(Absent(what, error.problem))
        except jax.errors.JaxRuntimeError as error:  # most likely out of memory
            first_line, _, _ = str(error).partition("\n")
            absent.append(Absent(what, f"its program failed: {first_line}"))
        return None

    if known is None:
        large = _memory_array_bytes()
        known = Peaks(
            attempt("memory_bytes_per_s", lambda: bytes_per_s(large)),
            large,
            attempt("cache_bytes_per_s", _cache_bytes_per_s),
            CACHE_ARRAY_BYTES,
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
    rates = {dtype: attempt(f"matmul_flops_per_s.{dtype}", lambda d=dtype: matmul_flops_per_s(d)) for dtype in dtypes}
    matmuls = dict(known.matmul_flops_per_s) | {dtype: rate for dtype, rate in rates.items() if rate is not None}
    kept = [each for each in known.absent if each.what not in {f"matmul_flops_per_s.{d}" for d in dtypes}]
    return dataclasses.replace(known, matmul_flops_per_s=matmuls, absent=(*kept, *absent))


def bytes_per_s(size_bytes: int) -> float:
    """Bytes read plus bytes written, per second, of an f32 array that is negated in place again and again."""
    program = jax.jit(
        lambda x, turns: jax.lax.fori_loop(0, turns, lambda _, value: -value, x), donate_argnums=0
    ).lower(jax.ShapeDtypeStruct((size_bytes // 4,), jnp.float32), 1).compile()  # fmt: skip
    array = program(jnp.ones(size_bytes // 4, jnp.float32), 1).block_until_ready()

    def turns_s(turns: int) -> float:
        nonlocal array
        start = perf_counter_ns()
        array = program(array, turns).block_until_ready()
        return (perf_counter_ns() - start) * 1e-9

    turns = _long_enough(turns_s)
    return turns * 2 * size_bytes / _best(lambda: turns_s(turns))


def matmul_flops_per_s(dtype: MatmulType) -> float:
    """2·n³ by the time of a product of two n × n matrices, at the best n.

    Raises:
        NotMeasured: JAX would take another dtype in its place.
    """
    if jax.dtypes.canonicalize_dtype(DTYPES[dtype]) != jnp.dtype(DTYPES[dtype]):
        raise NotMeasured(f"JAX makes no {dtype} arrays here: jax_enable_x64 is off")
    best = 0.0
    for n in MATMUL_SIZES:
        rate, took_s = _matmul(n, dtype)
        if rate < best:
            break
        best = rate
        if took_s * 8 > BUDGET_S / 4:  # the next one has eight times the work
            break
    return best


def _matmul(n: int, dtype: MatmulType) -> tuple[float, float]:
    """(FLOP/s, seconds of one)"""
    # A constant of 1/n keeps the values at 1, however often they are multiplied.
    program = jax.jit(
        lambda x, y, turns: jax.lax.fori_loop(0, turns, lambda _, value: value @ y, x)
    ).lower(*[jax.ShapeDtypeStruct((n, n), DTYPES[dtype])] * 2, 1).compile()  # fmt: skip
    x, y = jnp.ones((n, n), DTYPES[dtype]), jnp.full((n, n), 1 / n, DTYPES[dtype])
    program(x, y, 1).block_until_ready()

    def turns_s(turns: int) -> float:
        start = perf_counter_ns()
        program(x, y, turns).block_until_ready()
        return (perf_counter_ns() - start) * 1e-9

    turns = _long_enough(turns_s)
    one_s = _best(lambda: turns_s(turns)) / turns
    return 2 * n**3 / one_s, one_s


def _cache_bytes_per_s() -> float:
    if jax.local_devices()[0].platform != "cpu":
        raise NotMeasured("known of CPUs only: on an accelerator an array so small measures the launch of its kernel")
    return bytes_per_s(CACHE_ARRAY_BYTES)


def _long_enough(turns_s: Callable[[int], float]) -> int:
    """The number of iterations that take `CALL_S` together."""
    turns = 1
    while (took_s := turns_s(turns)) < CALL_S and turns < 2**28:
        turns = max(2 * turns, min(100 * turns, int(1.2 * turns * CALL_S / max(took_s, 1e-9))))
    return turns


def _best(call_s: Callable[[], float]) -> float:
    """The fastest of at most `REPEATS`, in about `BUDGET_S`."""
    taken: list[float] = []
    while len(taken) < REPEATS and (len(taken) < 2 or sum(taken) < BUDGET_S):
        taken.append(call_s())
    return min(taken)


def _memory_array_bytes() -> int:
    if jax.local_devices()[0].platform != "cpu":
        return MOST_MEMORY_ARRAY_BYTES
    said = (read_text(_LAST_CACHE) or "").strip()
    last = int(said.removesuffix("K")) * 2**10 if said.removesuffix("K").isdecimal() else 0
    return min(max(TIMES_LAST_CACHE * last, LEAST_MEMORY_ARRAY_BYTES), MOST_MEMORY_ARRAY_BYTES)
