"""The lab that measures in worker processes: one limit of time for all that it is asked."""

from __future__ import annotations

from typing import Any

import pytest

from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments import lab as lab_module
from benchax.experiments.lab import LEAST_LEFT_S, WorkerLab
from benchax.options import DEFAULTS
from benchax.progress import ProgressEvent


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What comparisons are given, in place of making them; 10 s after the lab was made."""
    given: list[Any] = []
    monkeypatch.setattr(lab_module, "monotonic", lambda: 10.0)
    monkeypatch.setattr(lab_module.pair_timing, "time_pairs", lambda *words: given.append(words[2]) or {})
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
