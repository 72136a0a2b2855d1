"""The checklist of one function with everything real, and how lines are answered, with made-up knowledge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import evidence, judged

import benchax
from benchax.auditing import checklist as lists
from benchax.auditing.checklist import ITEMS, Item, Known, walk_checklist
from benchax.auditing.evidence import Evidence
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.results.audit import Audit, Checked, Finding
from benchax.results.experiment import Errors, Experiment, VariantRow


def double(x):
    return x * 2


def branch(x):
    return x if x > 0 else -x


def audited(answers: Mapping[str, tuple[list[Finding], Checked]]) -> Audit:
    findings = tuple(replace(one, rule=rule) for rule, (found, _) in answers.items() for one in found)
    return Audit("f", findings=findings, checked=tuple(replace(c, rule=rule) for rule, (_, c) in answers.items()))


def known(row: VariantRow | None = None, **answers: Any) -> Known:
    baseline = VariantRow("baseline", "as it is", errors=Errors("float64", 1e-6, 1e-7))
    tried = Experiment("f", "f32[8]", baseline, (row,) if row else ())
    return Known(evidence(double, "f32[8]", eager_s=1e-3, jitted_s=1e-4), audited(answers), tried)


def answer(item: Item, what: Known) -> tuple[str, str]:
    return item.answer(what)


def of_rules(*rules: str) -> Item:
    return Item("section", "text", lists._by_rules, rules)


FINDING = Finding("a", "warning", "it is slow", (), "do", "page", gain="measured: 2 ms")
A_FOUND = ([FINDING], Checked("a", "?", "finding"))
FINE = ([], Checked("b", "?", "fine"))
NO = ([], Checked("c", "?", "not applicable", "no loop"))
UNSEEN = ([], Checked("d", "?", "not checked", "no time"))


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"a": A_FOUND, "b": FINE}, ("no", "it is slow (measured: 2 ms)")),
        ({"b": FINE, "c": NO}, ("yes", "nothing found by b")),
        ({"b": FINE, "d": UNSEEN}, ("not checked", "no time; nothing found by b")),
        ({"c": NO}, ("not applicable", "no loop")),
        ({"c": NO, "d": UNSEEN}, ("not checked", "no time")),
    ],
)
def test_rules_answer_a_line(answers: dict, expected: tuple[str, str]) -> None:
    assert answer(of_rules(*answers), known(**answers)) == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (VariantRow("v", "", sentence="saves 3 ms"), ("no", "tried: it saves 3 ms")),
        (VariantRow("v", "", sentence="costs 3 ms"), ("yes", "tried, nothing to be gained: costs 3 ms")),
        (VariantRow("v", "", "wrong_result", "off by 9 %"), ("yes", "tried, and rightly not used: off by 9 %")),
        (VariantRow("v", "", "not_available", "no gradient"), ("not applicable", "no gradient")),
        (VariantRow("v", "", "failed", "out of memory"), ("not checked", "out of memory")),
        (
            VariantRow("v", "", sentence="time unclear", comparison=judged(0.04, verdict="unclear")),
            ("not checked", "tried, and undecided: time unclear"),
        ),
        (VariantRow("v:dots", "", sentence="saves 3 MiB"), ("no", "dots: tried: it saves 3 MiB")),
    ],
)
def test_a_variant_answers_a_line(row: VariantRow, expected: tuple[str, str]) -> None:
    assert answer(Item("section", "text", lists._by_variant, variant="v"), known(row)) == expected


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(FINE, "yes"), (UNSEEN, "not checked"), (A_FOUND, "no")],
    ids=["pays", "undecided", "trivial"],
)
def test_what_is_jitted_has_a_tick_where_it_was_decided_that_it_pays(outcome: Any, expected: str) -> None:
    answers = {"not-jitted": NO, "trivial-jit": outcome}
    jitted = Known(evidence(jax.jit(double), "f32[8]", eager_s=1e-3, jitted_s=1e-4), audited(answers), None)
    (item,) = (item for item in ITEMS if item.text == "JIT expensive functions")

    assert answer(item, jitted)[0] == expected


def test_the_time_of_a_call_says_which_timer_read_it() -> None:
    """Other lines show the wall time of the same call, which can be several times as long."""
    (item,) = (item for item in ITEMS if item.text == "Profile before optimising")

    _, why = answer(item, known())

    assert re.search(r"a call takes \S+ µs by the \w+ timer", why)


def test_comparisons_none_of_which_was_decided_validate_nothing() -> None:
    row = VariantRow("bf16", "", comparison=judged(0.5, verdict="unclear"))
    (item,) = (item for item in ITEMS if item.text.startswith("Validate"))

    assert answer(item, known(row))[0] == "not checked"


def test_low_precision_parameters_are_named() -> None:
    e = known()
    low = Known(Evidence(make_case(double, (jnp.ones(4, jnp.bfloat16),))), audited({}), None)

    (item,) = (item for item in ITEMS if item.text == "Keep parameters in fp32")

    assert answer(item, e) == ("yes", "1 float input of 32 bits or more, none of fewer")
    assert answer(item, low)[0] == "no"


def test_every_line_has_an_answer_also_for_a_function_that_does_not_trace() -> None:
    found = walk_checklist(make_case(branch, (jnp.float32(1),)), max_time_s=0.0)[0]

    assert len(found.ticks) == len(ITEMS)
    assert all(tick.why for tick in found.ticks)
    remat = next(tick for tick in found.ticks if tick.text.startswith("Remat"))
    assert (remat.answer, "does not trace" in remat.why) == ("not checked", True)


def test_variants_are_not_tried_where_the_time_that_is_left_is_not_enough() -> None:
    e = Evidence(make_case(double, (1.0,)))
    e.process_s = 4.0

    with pytest.raises(NotMeasured, match=r"the 10 s were used up \(--max-time\)"):
        lists._try_variants(e, 10.0, perf_counter())


def test_variants_have_the_time_that_rules_have_left_and_begin_no_process_too_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    e = Evidence(make_case(double, (1.0,)))
    e.process_s = 1.0
    monkeypatch.setattr(lists, "perf_counter", lambda: 104.0)
    monkeypatch.setattr(lists, "run_experiment", lambda case, names, lab: lab)

    lab: Any = lists._try_variants(e, 10.0, begun=100.0)

    assert (lab.effort.max_time_s, lab.begins_late) == (5.0, False)


@pytest.mark.slow
@pytest.mark.serial
def test_a_whole_checklist_is_measured(project: Path) -> None:
    found = benchax.checklist(double, "f32[8]", max_time_s=60)  # long enough for all lines on a busy machine

    answers = {tick.text: tick.answer for tick in found.ticks}
    traces = next(tick for tick in found.ticks if tick.text.startswith("Take traces"))
    assert answers["Profile memory"] == "yes"
    assert (traces.answer, traces.by) == ("not applicable", ("profile-missing",))
    profiled = next(tick for tick in found.ticks if tick.text.startswith("Profile before"))
    assert re.search(r" by the \w+ timer, building", profiled.why)  # both lines show a time of one call
    assert "by the wall timer, and a profile is worth it from 10.0 ms on" in traces.why
    assert answers["Test numerical stability"] == "yes"
    assert answers["Shard over the devices"] == "not applicable"
