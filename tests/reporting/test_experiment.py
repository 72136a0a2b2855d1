"""Experiments in a table, in words, and as HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from comparisons_by_hand import HOST, compared

from benchax.model import Absent, Remark, Version
from benchax.reporting import experiment, terminal
from benchax.results.experiment import Contribution, Curve, Errors, Experiment, Point, VariantRow

NASTY = "[bold]µ\n<script>alert(1)</script>[/nope]"
FASTER = compared(1, 0.5, baseline=Version("baseline"), candidate=Version("bf16"), confirmed=True)
BASELINE = VariantRow("baseline", "as it is", compile_s=0.02, peak_bytes=2**20, errors=Errors("float64", 1e-7, 1e-8))
BF16 = replace(
    BASELINE, name="bf16", comparison=FASTER, errors=Errors("float64", 3e-3, 1e-3), sentence="saves 5 µs",
    facts=(("inputs", "bf16[8]"),),
)  # fmt: skip
FAILED = VariantRow("f16", "half", "wrong_result", NASTY, errors=Errors("float64", None, None, 3, 2), sentence=NASTY)
SAME = replace(BASELINE, name="tf32", reason="same program", sentence="does nothing here")
REFUSED = VariantRow("donate", "", "not_available", "nothing fits", sentence="nothing fits")
FOUND = Experiment("mm", "f32[8]", BASELINE, (BF16, FAILED, SAME, REFUSED), environment=HOST)


def test_at_80_columns_it_is_a_table_with_its_head_and_its_rows() -> None:
    long = replace(BF16, name="accumulate-f32-in-all-loops")

    text = terminal.to_text(experiment.document(replace(FOUND, rows=(long, *FOUND.rows))), 80)

    lines = text.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("variant"))
    assert lines[head].split() == ["variant", "time", "per", "call", "speedup", "verdict"]
    assert any(line.startswith("baseline") and line.endswith("baseline") for line in lines[head:])
    assert "Hidden at this width: peak, compile, error." in lines
    assert all(len(line) <= 80 for line in lines[head:])


def test_an_experiment_is_a_table_and_a_sentence_for_each_variant(snapshot: Any) -> None:
    """What was not compared has no times, and what was not measured is no zero."""
    assert str(FOUND) == snapshot
    assert [row[0].style for row in experiment.table(FOUND).rows] == ["", "good", "bad", "", "faint"]


def test_specs_of_hundreds_of_arrays_are_cut_and_other_facts_are_not() -> None:
    facts = (("inputs", "bf16[8], " * 50), ("sensitive", "factor " * 50))

    text = " ".join(str(replace(FOUND, rows=(replace(BF16, facts=facts),))).split())

    assert text.count("bf16[8]") < 20
    assert text.count("factor") == 50


def test_why_there_are_no_errors_is_said_once() -> None:
    absent = (Absent("errors", "two traces of the function differ"),)
    rows = (replace(row, errors=None, absent=absent) for row in (BASELINE, BF16))

    baseline, bf16 = rows
    text = str(replace(FOUND, baseline=baseline, rows=(bf16,)))

    assert text.count("errors not measured, because two traces of the function differ") == 1


def test_curves_contributions_and_remarks_are_shown(snapshot: Any) -> None:
    curve = Curve("batch", "time by batch", "batch", (Point(8, "8", 1e-3, 9e-4, 1.1e-3),), sentence="knee at 8")
    ablation = (Contribution("bf16", None, None, sentence="saves 3 ms"),)
    remarks = (Remark("x", "warning", "a remark"),)

    assert str(Experiment("mm", "f32[8]", BASELINE, (), (curve,), ablation, remarks)) == snapshot


def test_an_experiment_without_a_baseline_is_drawn() -> None:
    failed = VariantRow("baseline", "as it is", "failed", "error in look: oh", sentence="error in look: oh")

    assert "error in look: oh" in str(Experiment("f", "", failed))
