"""The lab that measures in worker processes: one limit of time for all that it is asked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments import lab
from benchax.experiments import lab as lab_module
from benchax.experiments.functions import converted
from benchax.experiments.lab import LEAST_LEFT_S, Condition, Pair, WorkerLab, pair_processes, time_pairs
from benchax.options import DEFAULTS, resolve
from benchax.paired_runs.partners import Service, start_partners
from benchax.progress import ProgressEvent


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What comparisons are given, in place of making them; 10 s after the lab was made."""
    given: list[Any] = []
    monkeypatch.setattr(lab_module, "monotonic", lambda: 10.0)
    monkeypatch.setattr(lab_module, "time_pairs", lambda *words: given.append(words[2]) or {})
    return given


def test_a_comparison_has_what_is_left_of_the_limit(limits: list[Any]) -> None:
    WorkerLab(DEFAULTS, Effort(max_time_s=15.0), begun_s=0.0).time_pairs([])
    WorkerLab(DEFAULTS, Effort(), begun_s=0.0).time_pairs([], (2,))

    assert [effort.max_time_s for effort in limits] == [5.0, None]


def test_where_no_comparison_begins_late_none_has_any_time_then(limits: list[Any]) -> None:
    WorkerLab(DEFAULTS, Effort(max_time_s=5.0), begun_s=0.0, begins_late=False).time_pairs([])

    assert [effort.max_time_s for effort in limits] == [0.0]


def test_what_has_begun_ends_and_what_would_be_another_one_is_refused(limits: list[Any]) -> None:
    late = WorkerLab(DEFAULTS, Effort(max_time_s=5.0), begun_s=0.0)

    late.time_pairs([])

    assert [effort.max_time_s for effort in limits] == [LEAST_LEFT_S]
    with pytest.raises(NotMeasured, match="the 5 s were used up"):
        late.time_pairs([], (2, 3))
    with pytest.raises(NotMeasured, match="the 5 s were used up"):
        late.time_processes(make_case(abs, (1.0,)), ({}, {}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("limit_s", "left_s"), [(15.0, 5.0), (None, None)])
def test_who_waits_is_told_what_is_left_of_the_limit_and_nothing_where_there_is_none(
    limit_s: float | None, left_s: float | None, limits: list[Any]
) -> None:
    told: list[ProgressEvent] = []

    WorkerLab(DEFAULTS, Effort(max_time_s=limit_s), told.append, begun_s=0.0).tell("check of donate")

    assert told == [ProgressEvent("check of donate", left_s=left_s, is_most=True)]


# ---- Pairs of cases as paired runs; what cannot be laid beside the other is a failure of its own ----


def test_inputs_that_cannot_be_laid_beside_others_are_a_failure_and_no_exception() -> None:
    compiled = jax.jit(lambda x: x).lower(jnp.ones(3)).compile()
    case = make_case(compiled, ("f32[3]",), name="built")
    other = replace(case, inputs=partial(converted, case, 0, "bfloat16"))

    found = time_pairs([Pair("bf16", "baseline", case, "bf16", other)], resolve(), Effort(), lambda text: None)

    assert found["bf16"].failure is not None
    assert "cannot be reached" in found["bf16"].why
    assert found["bf16"].ratio is None


def test_nothing_to_compare_starts_nothing() -> None:
    assert time_pairs([], resolve(), Effort(), lambda text: None) == {}


# ---- Pairs of processes that are born under different conditions. Real processes; nothing is timed ----


SETTING = "jax_cpu_enable_async_dispatch"


@pytest.mark.slow
def test_both_find_the_case_each_under_its_own_condition(tmp_path: Path, monkeypatch) -> None:
    """A function that no other process can import, arguments by name, a path relative to where the user is."""
    monkeypatch.chdir(tmp_path)
    Path("factor").write_text("3")
    seen: list[Any] = []

    def scaled(x, power, *, shift):
        return (x * float(Path("factor").read_text())) ** power + shift

    def look(sides, chosen, max_time_s, progress):
        with start_partners(sides, chosen, None) as partners:
            seen.extend(partner.listing() for partner in partners)
            for partner, listing in zip(partners, seen, strict=True):
                ((number, _),) = listing.cases.values()
                partner.ask(Service.prepare, number)
                outputs.append(partner.ask(Service.outputs, None)[0].tobytes())
        return []

    outputs: list[bytes] = []
    case = make_case(scaled, ("f32[4]", 2), {"shift": "f32[4]"}, static=("power",), name="é scaled")
    flag = "--xla_cpu_enable_fast_math=true"
    conditions = Condition("one", {SETTING: False}), Condition("other", {SETTING: True}, {"XLA_FLAGS": flag})

    monkeypatch.setattr(lab, "compare_launches", look)
    pair_processes(case, conditions, 7, None, lambda text: None)

    one, other = (listing.environment for listing in seen)
    assert [list(listing.cases) for listing in seen] == [[case.id], [case.id]]
    assert (one.config[SETTING], other.config[SETTING]) == (False, True)
    assert other.flags["XLA_FLAGS"] == flag
    assert flag not in one.flags.get("XLA_FLAGS", "")
    assert len(outputs[0]) == 16
    assert outputs[0] == outputs[1]
