"""The file that google-benchmark's compare.py reads."""

from __future__ import annotations

import json
import math
from typing import Any

from exported_rows import FAILED, ROWS, text


def rows() -> list[dict[str, Any]]:
    return json.loads(text("google-benchmark", ROWS))["benchmarks"]


def test_a_row_has_what_compare_py_looks_at() -> None:
    """report.py: is_potentially_comparable_benchmark, calculate_geomean; util.py: sort_benchmark_results."""
    needed = {"name", "run_type", "real_time", "cpu_time", "time_unit", "repetition_index", "family_index"}

    assert all(needed <= row.keys() for row in rows())
    assert json.loads(text("google-benchmark"))["context"]["json_schema_version"] == 1


def test_the_time_is_the_median_in_nanoseconds_and_all_calls_are_counted() -> None:
    full = rows()[0]

    assert (full["real_time"], full["time_unit"], full["iterations"]) == (120_000.0, "ns", 6)
    assert full["label"] == "median of 6 samples by wall: latency a caller sees"
    assert (full["compile_s"], full["predicted_peak_bytes"], full["low_95_s"]) == (0.25, 2097164, 1.1e-4)


def test_cpu_time_is_not_made_up() -> None:
    """compare.py needs the key; NaN is how the library writes a number that is none."""
    assert all(math.isnan(row["cpu_time"]) for row in rows())


def test_one_row_per_case_so_that_no_test_takes_readings_for_independent() -> None:
    assert [row["repetitions"] for row in rows()] == [1, 1, 1]


def test_a_failure_is_an_error_without_a_time() -> None:
    failed = rows()[2]

    assert failed["error_occurred"] is True
    assert failed["error_message"] == "it ended with timeout in compile: over 3 s"
    assert math.isnan(failed["real_time"])
    assert FAILED.failure is not None
