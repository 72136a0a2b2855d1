"""A program compared with the rates of the machine: the time for its bytes and its FLOPs at the best rates reached.

Bytes are the bytes that instructions read and write. So a program whose values stay in caches can be faster than its
bytes allow. Then the share is above 100 %, and a remark says so. FLOPs are compared with a matmul, whose rate few other
operations approach.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import get_args

from benchax.errors import BenchaxError
from benchax.machine.peaks import MatmulType
from benchax.model import Absent, Measurement
from benchax.results.inspection import Inspection
from benchax.results.roofline import Peaks, Roofline, Timing

NO_PEAKS = "the rates of this machine were never measured; --time measures them, in about 2 s"
_DOT = re.compile(r"= (\w+)\[[^\]]*\](?:\{[^}]*\})? dot\(")


def roofline(inspection: Inspection, peaks: Peaks | None, timing: Timing | None = None) -> Roofline:
    """Compares bytes and FLOPs of one call with the peaks.

    Args:
        peaks: None if unknown.
        timing: timing of the same program; None if it was not run.
    """
    counts, dtype = inspection.counts, matmul_type(inspection)
    if counts is None or peaks is None:
        why = NO_PEAKS if peaks is None else inspection.why_absent("counts") or "its work was not counted"
        return Roofline(timing=timing, absent=(Absent("bytes_s", why), Absent("flops_s", why)))
    working_set = inspection.memory.predicted_peak_bytes if inspection.memory else None
    found = peaks.roofline(counts.flops, counts.bytes_accessed, working_set, dtype)
    return _with_reasons(replace(found, is_at_least=not counts.is_exact, timing=timing), inspection, peaks)


def matmul_type(inspection: Inspection) -> MatmulType:
    """Returns the type of the first matmul in the program. It is f32 if there is no matmul, or if its type is another
    one."""
    first = _DOT.search(inspection.hlo or "")
    return next((known for known in get_args(MatmulType) if first and first[1] == known), "f32")


def timing_of(row: Measurement) -> Timing:
    """The headline of a row.

    Raises:
        BenchaxError: it has none; says why.
    """
    samples = row.headline
    if samples is None:
        why = f"{row.failure.stage}: {row.failure.message}" if row.failure else "no timer could read it"
        raise BenchaxError(f"{row.case.label} was not timed: {why}")
    summary = row.summary(samples.timer)
    return Timing(samples.timer, summary.median_s, summary.low_s, summary.high_s)


def _with_reasons(found: Roofline, inspection: Inspection, peaks: Peaks) -> Roofline:
    absent: list[Absent] = []
    if found.bytes_s is None:
        why = peaks.why_absent("memory_bytes_per_s") or inspection.why_absent("counts.bytes_accessed")
        absent.append(Absent("bytes_s", why or "its bytes are not known"))
    if found.flops_s is None:
        why = peaks.why_absent(f"matmul_flops_per_s.{found.dtype}") or inspection.why_absent("counts.flops")
        absent.append(Absent("flops_s", why or (NO_PEAKS if found.flops_per_s is None else "its FLOPs are not known")))
    return replace(found, absent=tuple(absent))
