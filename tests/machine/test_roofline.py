"""A program beside the rates of the machine: arithmetic by hand, and no number where something is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchax.errors import BenchaxError
from benchax.machine.peaks import NO_PEAKS, matmul_type, roofline, timing_of
from benchax.model import Absent, CaseId, Environment, Failure, Measurement, Memory, Samples
from benchax.options import resolve
from benchax.results.inspection import Counts, Inspection, Peaks, Place, Timing

PEAKS = Peaks(1e9, 2**26, 4e9, 2**18, {"f32": 1e12})
COUNTS = Counts(flops=2e9, transcendentals=None, bytes_accessed=4e6, is_exact=True)
NO_MATMUL = replace(PEAKS, matmul_flops_per_s={}, absent=(Absent("matmul_flops_per_s.f32", "OOM"),))
FOUND = Inspection("f", "", Place(), counts=COUNTS, memory=Memory(predicted_peak_bytes=2**27))


def test_bytes_and_operations_take_what_the_rates_say() -> None:
    found = roofline(FOUND, PEAKS, Timing("wall", 8e-3))
    small = roofline(replace(FOUND, memory=Memory(predicted_peak_bytes=2**16)), PEAKS)
    partly = roofline(replace(FOUND, counts=replace(COUNTS, is_exact=False)), PEAKS, Timing("wall", 8e-3))

    assert (found.bytes_s, found.flops_s) == (4e-3, 2e-3)
    assert (found.roof_s, found.is_memory_bound, found.share) == (4e-3, True, 0.5)
    assert found.absent == ()
    # What fits into caches is held against the faster rate.
    assert (small.bytes_s, small.is_memory_bound) == (1e-3, False)
    # There is no share of work that was not counted in full.
    assert (partly.bytes_s is None, partly.share) == (False, None)


@pytest.mark.parametrize(
    ("found", "peaks", "what", "why"),
    [
        (FOUND, None, "bytes_s", NO_PEAKS),
        (replace(FOUND, counts=None, absent=(Absent("counts", "no text"),)), PEAKS, "flops_s", "no text"),
        (
            replace(FOUND, counts=replace(COUNTS, flops=None), absent=(Absent("counts.flops", "a callback"),)),
            PEAKS,
            "flops_s",
            "a callback",
        ),
        (FOUND, NO_MATMUL, "flops_s", "OOM"),
        (FOUND, replace(PEAKS, memory_bytes_per_s=None, absent=(Absent("memory_bytes_per_s", "x"),)), "bytes_s", "x"),
    ],
)
def test_what_is_missing_has_a_reason(found: Inspection, peaks: Peaks | None, what: str, why: str) -> None:
    roof = roofline(found, peaks, Timing("wall", 1.0))

    assert getattr(roof, what) is None
    assert roof.why_absent(what) == why
    assert (roof.roof_s, roof.is_memory_bound, roof.share) == (None, None, None)


@pytest.mark.parametrize(
    ("hlo", "dtype"),
    [
        ("%d = bf16[8,8]{1,0} dot(%a, %b)", "bf16"),
        ("%d = f64[8,8] dot(%a, %b)", "f64"),
        ("%d = s32[8,8] dot(%a, %b)", "f32"),
        ("", "f32"),
    ],
)
def test_the_matmul_of_the_program_chooses_the_rate(hlo: str, dtype: str) -> None:
    assert matmul_type(replace(FOUND, hlo=hlo)) == dtype


def test_a_case_without_a_time_is_an_error_that_says_why() -> None:
    row = Measurement(CaseId("f"), Environment("h", "o", "p"), resolve(), "run", "2026-01-01T00:00:00")
    samples = Samples("wall", 1, (1e-3,) * 9)

    assert timing_of(replace(row, samples=(samples,))).median_s == 1e-3
    with pytest.raises(BenchaxError, match="f was not timed: run: it crashed"):
        timing_of(replace(row, failure=Failure("crashed", "run", "it crashed")))
