"""XLA's counts for a program: floating-point operations, transcendentals, bytes touched.

A static estimate, taken from the program and never from a run. It has four traps, which benchax handles like this:

    loops         a loop body is counted once, however often it runs (ten matmuls in a fori_loop: one);
                  `has_loops` says so.
    custom calls  XLA cannot look into LAPACK, cuBLAS or a Python callback. It enters -1 into each sum and goes on:
                  two matmuls around a callback make 1 048 575 (jax 0.6.2 to 0.10.2; on GPU every cuBLAS matmul is
                  such a call, jax-ml/jax#16008, #22249). A sum with a hole in it is not a count, so it is `None`.
    FFTs          are counted 1.6 times too high, 3.2 times where numbers are real, and worse along several axes;
                  replaced by our count, see `work.py`.
    silence       a key that is absent was never added to: no operation of that kind was seen. It stays `None`, since
                  the analysis promises neither its keys nor their presence, and "0 FLOP" would be a claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from benchax.model import Cost
from benchax.program import hlo, work

INLINE_FLOPS = 1000
"""XLA:CPU runs programs with fewer on the calling thread (xla/pjrt/cpu/cpu_client.cc, cheap_computation_)."""
FLOPS, TRANSCENDENTALS, BYTES_ACCESSED = "flops", "transcendentals", "bytes accessed"


def cost(compiled: jax.stages.Compiled, hlo_text: str) -> Cost | None:
    """Returns XLA's count for the optimised program, per call and per device.

    Args:
        compiled: the program.
        hlo_text: its text, `compiled.as_text()`, for facts that the count lacks.

    Returns:
        Cost, with None for fields that XLA does not report; None if there is no analysis at all.
    """
    counts = _analysis(compiled)
    if counts is None:
        return None
    if hlo.opaque_calls(hlo_text):
        counts = {}
    return Cost(
        flops=_with_own_ffts(_known_count(counts, FLOPS), hlo_text),
        transcendentals=_known_count(counts, TRANSCENDENTALS),
        bytes_accessed=_known_count(counts, BYTES_ACCESSED),
        has_loops=hlo.has_while(hlo_text),
    )


def _with_own_ffts(flops: float | None, hlo_text: str) -> float | None:
    """Returns XLA's sum, with our count of each FFT instead of XLA's count. It returns None if XLA's count differs from
    the formula that we know."""
    if flops is None or " fft(" not in hlo_text:
        return flops
    for computation in hlo.parse(hlo_text).computations.values():
        for each in computation.instructions:
            if each.opcode == "fft":
                flops -= work.xla_fft_flops(computation, each)
                flops += work.arithmetic(computation, each, lambda _: work.Work()).flops
                if flops < 0:  # another XLA, which counts FFTs in another way
                    return None
    return flops


def inline_flops(compiled: jax.stages.Compiled) -> float | None:
    """The number by which XLA:CPU decides where a program runs: below 1000 on the calling thread, else on another.

    This is the raw sum of the cost analysis, holes of -1 and all, with a missing key as 0 (XLA,
    xla/pjrt/cpu/cpu_client.cc: `cheap_computation_`). Meaningful on CPU only. None: there is no analysis.
    """
    counts = _analysis(compiled)
    return None if counts is None else float(counts.get(FLOPS, 0.0))


def lowered_flops(lowered: jax.stages.Lowered) -> float | None:
    """FLOPs of the program as written, before XLA optimises, dead code included. None where XLA does not say.

    At least: the work of custom calls is not in it.
    """
    counts = _analysis(lowered)
    return None if counts is None else _known_count(counts, FLOPS)


def _analysis(stage: jax.stages.Compiled | jax.stages.Lowered) -> Mapping[str, float] | None:
    try:
        found: Any = stage.cost_analysis()
    except Exception:
        # Documented as unstable and optional, and a backend may fail in its own way (XlaRuntimeError
        # UNIMPLEMENTED, AttributeError). Harmless: the None becomes "XLA does not say" in the row.
        return None
    return found if isinstance(found, Mapping) else None


def _known_count(counts: Mapping[str, float], key: str) -> float | None:
    """Negative is XLA's word for unknown."""
    value = counts.get(key)
    return None if value is None or value < 0 else float(value)
