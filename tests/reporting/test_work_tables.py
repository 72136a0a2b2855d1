"""Work by line beside the roofline: what bounds a line, and how long it takes at least; all by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchax.reporting.inspection import lines, scopes
from benchax.results.inspection import Counts, Inspection, LineWork, Place
from benchax.results.roofline import Roofline

ROOF = Roofline(bytes_s=1.0, flops_s=1.0, bytes_per_s=1e9, flops_per_s=1e12)
PRODUCT = LineWork("m.py:1", "layer", 2e9, 0.0, 1e3, 2e9)
FUSED = LineWork("m.py:2", "", 1e6, 0.0, 0.0, 0.0)
KERNEL = LineWork("m.py:3", "", 10.0, 0.0, 4e6, 1e6)
CALL = LineWork("m.py:4", "", 0.0, 0.0, 8e6, None)
COUNTS = Counts(flops=None, transcendentals=None, bytes_accessed=None, is_exact=False)
FOUND = Inspection("f", "", Place(), counts=COUNTS, lines=(PRODUCT, FUSED, KERNEL, CALL))


def test_a_line_is_bound_by_what_its_kernels_take_longer_for() -> None:
    table = lines(FOUND, ROOF)

    assert table is not None
    at = table.names.index("least time")
    assert {line[0]: line[at : at + 2] for line in table.lines} == {
        "m.py:1": ("2.00 ms", "compute"),
        "m.py:2": ("", ""),  # all of it is in the kernel of another line
        "m.py:3": ("4.00 ms", "memory"),
        "m.py:4": ("", ""),  # nobody can look into it
    }
    assert table.note == (
        "least time: estimated; the longer of the bytes and of the FLOPs of their kernels, "
        "at 1.00 GB/s and 1.00 TFLOP/s"
    )


def test_scopes_stand_beside_the_same_rates() -> None:
    table = scopes(FOUND, replace(ROOF, is_at_least=True))

    assert table is not None
    assert next(line for line in table.lines if line[0] == "layer")[-2:] == ("2.00 ms", "compute")
    assert next(line for line in table.lines if line[0] == "(none)")[-2:] == ("", "")
    assert table.note.endswith("of what could be counted")


@pytest.mark.parametrize("roof", [None, Roofline(), replace(ROOF, flops_per_s=None)])
def test_without_rates_there_are_no_times(roof: Roofline | None) -> None:
    table = lines(FOUND, roof)

    assert table is not None
    assert {"least time", "bound by"} & set(table.names) == set()
    assert table.note == ""
