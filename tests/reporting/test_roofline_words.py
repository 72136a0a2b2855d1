from __future__ import annotations

from benchax.reporting.tables import describe_rates
from benchax.results.roofline import Peaks


def test_rates_come_with_what_they_were_reached_by_and_missing_ones_are_left_out() -> None:
    assert describe_rates(Peaks(2e10, 2**27, None, 2**18, {"f32": 1e11, "bf16": 2e11})) == (
        "20.0 GB/s in memory (128 MiB), 100 GFLOP/s by matmuls of f32, 200 GFLOP/s by matmuls of bf16, "
        "the best that were reached"
    )
