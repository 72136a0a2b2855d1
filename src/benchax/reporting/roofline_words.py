"""Words of tables that compare lines with the roofline of the machine."""

from __future__ import annotations

from benchax.results.roofline import Peaks
from benchax.units import rate, size

BOUND = {True: "memory", False: "compute"}
"""Is it memory-bound?"""
NOT_MEASURED = "the rates of that machine, with its settings, were never measured; benchax inspect --time measures them"


def describe_rates(peaks: Peaks) -> str:
    """The best that was reached: 20 GB/s in memory (268 MB), 80 GB/s in caches (262 kB), 100 GFLOP/s by f32 matmuls."""
    parts = [
        f"{rate(per_s, 'B')} {where} ({size(array_bytes)})"
        for per_s, where, array_bytes in (
            (peaks.memory_bytes_per_s, "in memory", peaks.memory_array_bytes),
            (peaks.cache_bytes_per_s, "in caches", peaks.cache_array_bytes),
        )
        if per_s
    ]
    parts += [f"{rate(per_s, 'FLOP')} by matmuls of {dtype}" for dtype, per_s in peaks.matmul_flops_per_s.items()]
    return ", ".join(parts) + ", the best that were reached"
