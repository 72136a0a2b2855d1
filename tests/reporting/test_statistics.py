"""Mean ± standard deviation, quartiles and extremes of a row, on request."""

from __future__ import annotations

from dataclasses import replace

from exported_rows import document as document_of_format
from measurement_strategies import measured

from benchax.model import Samples
from benchax.reporting.measurement import document_of_statistics as document
from benchax.reporting.terminal import to_text


def test_each_timer_has_a_line() -> None:
    row = replace(
        measured(), samples=(Samples("wall", 1, (1e-3, 2e-3, 3e-3)), Samples("loop", 1, (-1e-6, 4e-6, 5e-6, 6e-6)))
    )

    lines = to_text(document(row)).splitlines()

    assert lines[0] == row.case.label
    wall, loop = (next(line for line in lines if line.startswith(timer)) for timer in ("wall", "loop"))
    assert "2.00 ms ± 1.00 ms" in wall
    assert "not above 0" in loop
    assert "-1" not in loop


def test_a_row_without_samples_says_so() -> None:
    assert "has no samples" in to_text(document(replace(measured(), samples=())))


def test_a_file_of_pytest_benchmark_holds_no_time_below_zero() -> None:
    row = replace(measured(), samples=(Samples("loop", 1, (-1e-6, 4e-6, 5e-6, 6e-6)),))

    (found,) = document_of_format("pytest-benchmark", (row,))["benchmarks"]

    assert found["stats"]["min"] == 4e-6
    assert found["stats"]["data"] == [4e-6, 5e-6, 6e-6]
    assert found["extra_info"]["readings_not_above_0"] == 1
