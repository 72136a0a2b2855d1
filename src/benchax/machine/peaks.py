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

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Literal, get_args

import jax
import jax.numpy as jnp

from benchax.environment import fingerprint, read_text
from benchax.errors import NotMeasured
from benchax.kept_peaks import file_of, keep_peaks, read_peaks
from benchax.machine.noise import timed
from benchax.model import Absent, Measurement
from benchax.results.inspection import Inspection, Peaks, Roofline
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
    return replace(found, path=str(path)) if keep_peaks(path, found) else found


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
    return replace(known, matmul_flops_per_s=matmuls, absent=(*kept, *absent))


def bytes_per_s(size_bytes: int) -> float:
    """Bytes read plus bytes written, per second, of an f32 array that is negated in place again and again."""
    program = jax.jit(
        lambda x, turns: jax.lax.fori_loop(0, turns, lambda _, value: -value, x), donate_argnums=0
    ).lower(jax.ShapeDtypeStruct((size_bytes // 4,), jnp.float32), 1).compile()  # fmt: skip
    array = program(jnp.ones(size_bytes // 4, jnp.float32), 1).block_until_ready()

    def call(turns: int) -> None:
        nonlocal array
        array = program(array, turns).block_until_ready()

    return 2 * size_bytes / _iteration_s(call)


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

    one_s = _iteration_s(lambda turns: program(x, y, turns).block_until_ready())
    return 2 * n**3 / one_s, one_s


def _iteration_s(call: Callable[[int], object], clock: Callable[[], int] = perf_counter_ns) -> float:
    """Seconds of one iteration in the fastest of some calls that are long enough: of at most `REPEATS`, in about
    `BUDGET_S`.

    Args:
        call: runs a loop of that many iterations.
    """
    turns = 1
    while (took_s := timed(partial(call, turns), clock)[1]) < CALL_S and turns < 2**28:
        turns = max(2 * turns, min(100 * turns, int(1.2 * turns * CALL_S / max(took_s, 1e-9))))
    taken: list[float] = []
    while len(taken) < REPEATS and (len(taken) < 2 or sum(taken) < BUDGET_S):
        taken.append(timed(partial(call, turns), clock)[1])
    return min(taken) / turns


def _cache_bytes_per_s() -> float:
    if jax.local_devices()[0].platform != "cpu":
        raise NotMeasured(
            "known for CPUs only: on an accelerator, such a small array measures the launch of its kernel"
        )
    return bytes_per_s(CACHE_ARRAY_BYTES)


def _memory_array_bytes() -> int:
    if jax.local_devices()[0].platform != "cpu":
        return MOST_MEMORY_ARRAY_BYTES
    said = (read_text(_LAST_CACHE) or "").strip()
    last = int(said.removesuffix("K")) * 2**10 if said.removesuffix("K").isdecimal() else 0
    return min(max(TIMES_LAST_CACHE * last, LEAST_MEMORY_ARRAY_BYTES), MOST_MEMORY_ARRAY_BYTES)


# ---- a program beside the rates ---------------------------------------------------------------------------------
#
# Bytes are the bytes that instructions read and write. So a program whose values stay in caches can be faster than its
# bytes allow. Then the share is above 100 %, and a remark says so. FLOPs are compared with a matmul, whose rate few
# other operations approach.

NO_PEAKS = "the rates of this machine were never measured; --time measures them, in about 2 s"
_DOT = re.compile(r"= (\w+)\[[^\]]*\](?:\{[^}]*\})? dot\(")


def roofline(inspection: Inspection, peaks: Peaks | None, timed: Measurement | None = None) -> Roofline:
    """Compares bytes and FLOPs of one call with the peaks.

    Args:
        peaks: None if unknown.
        timed: a row of the same program, with times; None if it was not run.
    """
    counts, dtype = inspection.counts, matmul_type(inspection)
    if counts is None or peaks is None:
        why = NO_PEAKS if peaks is None else inspection.why_absent("counts") or "its work was not counted"
        return Roofline(timed=timed, absent=(Absent("bytes_s", why), Absent("flops_s", why)))
    working_set = inspection.memory.predicted_peak_bytes if inspection.memory else None
    found = peaks.roofline(counts.flops, counts.bytes_accessed, working_set, dtype)
    absent: list[Absent] = []
    if found.bytes_s is None:
        why = peaks.why_absent("memory_bytes_per_s") or inspection.why_absent("counts.bytes_accessed")
        absent.append(Absent("bytes_s", why or "its bytes are not known"))
    if found.flops_s is None:
        why = peaks.why_absent(f"matmul_flops_per_s.{found.dtype}") or inspection.why_absent("counts.flops")
        absent.append(Absent("flops_s", why or (NO_PEAKS if found.flops_per_s is None else "its FLOPs are not known")))
    return replace(found, is_at_least=not counts.is_exact, timed=timed, absent=tuple(absent))


def matmul_type(inspection: Inspection) -> MatmulType:
    """Returns the type of the first matmul in the program. It is f32 if there is no matmul, or if its type is another
    one."""
    first = _DOT.search(inspection.hlo or "")
    return next((known for known in get_args(MatmulType) if first and first[1] == known), "f32")
