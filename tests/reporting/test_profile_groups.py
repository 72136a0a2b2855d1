"""Lines and scopes of a profile beside the roofline: arithmetic by hand, and no share where something is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchax.reporting.document import Table
from benchax.reporting.profile import by_line
from benchax.reporting.profile import list_groups as blocks
from benchax.results.profile import Op, Profile
from benchax.results.roofline import Peaks

PEAKS = Peaks(1e9, 1000, 1e9, 10, {"f32": 1e10})
PRODUCT = Op(
    "dot", "jit_f", "dot", 2, 0.4, 0.4, 0.5, source="/m.py:1", shape="f32[8]", flops=2e9, bytes_accessed=1e7
)  # 0.2 s of 0.4
COPY = replace(PRODUCT, name="copy", source="/m.py:2", flops=0.0, bytes_accessed=1e8)  # 0.1 s of 0.4
P = Profile("f", "cpu", (PRODUCT, COPY), fingerprint="here", peaks=PEAKS)


def beside(p: Profile) -> dict[str, tuple[str, str]]:
    """(of roofline, bound by) of each line."""
    table = by_line(p)
    assert table is not None
    if "of roofline" not in table.names:
        return {line[0]: ("", "") for line in table.lines}
    at = table.names.index("of roofline")
    return {line[0]: (line[at], line[at + 1]) for line in table.lines}


def test_a_line_has_its_share_of_the_roofline_and_what_bounds_it() -> None:
    assert beside(P) == {"m.py:1": ("50 %", "compute"), "m.py:2": ("25 %", "memory")}


def test_operations_of_one_line_follow_one_another() -> None:
    both = replace(P, ops=(PRODUCT, replace(COPY, source="/m.py:1")))

    assert beside(both) == {"m.py:1": ("38 %", "compute")}  # 0.2 s and 0.1 s of 0.8


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"flops": None}, ("", "")),  # a custom call
        ({"shape": "bf16[8]"}, ("", "")),  # no matmul of bf16 was measured
        ({"shape": "(f64[8], f32[8])"}, ("", "")),
        ({"total_s": None}, ("at most 50 %", "compute")),  # one of its calls has no end
        ({"self_s": 0.0}, ("", "")),
    ],
)
def test_what_is_not_known_of_a_line_is_not_made_up(change: dict[str, object], expected: tuple[str, str]) -> None:
    found = beside(replace(P, ops=(replace(PRODUCT, **change), COPY)))

    assert found == {"m.py:1": expected, "m.py:2": ("25 %", "memory")}


@pytest.mark.parametrize(
    ("p", "reason"),
    [
        (P, "at 1.00 GB/s in memory (1000 B), 1.00 GB/s in caches (10 B), 10.0 GFLOP/s by matmuls of f32, the best"),
        (replace(P, peaks=None, ops=(PRODUCT,) * 2), "not measured, because the rates of that machine"),
        (
            replace(P, peaks=None, fingerprint=None, ops=(PRODUCT,) * 2),
            "not measured, because the trace does not say on which machine it was recorded",
        ),
    ],
)
def test_the_rates_are_named_or_the_reason_why_there_are_none(p: Profile, reason: str) -> None:
    tables = [block for block in blocks(p) if isinstance(block, Table)]

    assert [reason in table.note for table in tables] == [True]


def test_what_the_numbers_are_is_said_once() -> None:
    scoped = replace(P, ops=(replace(PRODUCT, named_scope="layer"), COPY))

    notes = [block.note for block in blocks(scoped) if isinstance(block, Table)]

    assert notes[0] == ""
    assert "of roofline" in notes[1]
