"""Comparisons come back as they were, in order, whoever stores them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from measurement_strategies import RICH, exact, measured, values_of

from benchax.codec import decode_comparison, encode_comparison
from benchax.errors import FormatError
from benchax.model import Block, CaseId, Comparison, Failure, Numerics, Remark, Version
from benchax.store.comparisons import append, history
from benchax.store.database import DatabaseStore

F = CaseId("f", (("n", 8),))
SMALL = Comparison(F, "run", Version("v1"), Version("now"), "same")
FULL = Comparison(
    case=RICH.case,
    metric="run",
    baseline=Version("naïve\x00", "c0ffee", False, "0.9.2", "ab" * 32),
    candidate=Version("now", None, True, "0.10.2"),
    verdict="slower",
    why="it was so",
    ratio=1.1,
    low=1.0500000000000003,
    high=float("inf"),
    smallest_effect=0.02,
    baseline_value=1e-4,
    candidate_value=5e-324,
    blocks=(Block(0, (0.1 + 0.2, 1e-9), (1.0, 2.0)), Block(1, (), ())),
    method="process pairs",
    confirmed=False,
    numerics=Numerics("baseline", False, "out", 0.1, float("nan"), None, 2, 1e-5, "out differs"),
    failure=Failure("timeout", "rounds", "too long", "wait", "Traceback …"),
    remarks=(Remark("x", "info", "so it was"),),
    environment=RICH.environment,
    compared_at="2026-01-02T03:04:05.000006+00:00",
)


@given(comparison=values_of(Comparison))
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
def test_any_comparison_survives_the_store(store: DatabaseStore, comparison: Comparison) -> None:
    append(store, [comparison, FULL])

    (*_, newest) = history(store, comparison.case, comparison.metric, comparison.baseline.label)

    assert exact(newest) == exact(comparison)
    assert encode_comparison(comparison).isascii()
    assert exact(history(store, FULL.case)[-1]) == exact(FULL)


SLOWISH = json.dumps(json.loads(encode_comparison(SMALL)) | {"verdict": "slowish"})
BAD = ["", "[]", "null", "{}", '{"benchax": 99}', "{", encode_comparison(SMALL)[:-5], SLOWISH]


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode_comparison(text)


def test_a_history_is_of_one_case_and_metric_oldest_first(store: DatabaseStore) -> None:
    runs = [replace(SMALL, why=str(i)) for i in range(3)]
    peak = replace(SMALL, metric="peak")
    other = replace(SMALL, case=CaseId("f", (("n", 9),)))
    append(store, [runs[0], peak, other])
    store.append(measured("f", n=8))
    append(store, runs[1:])
    against = replace(SMALL, case=other.case, baseline=Version("v2"))
    append(store, [against])

    assert history(store, F) == runs
    assert history(store, F, "peak") == [peak]
    assert history(store, other.case) == [other, against]
    assert history(store, other.case, baseline="v2") == [against]
    assert history(store, other.case, baseline="v3") == []
    assert history(store, CaseId("f")) == []
    # All or none are stored.
    with pytest.raises(TypeError, match="slowish"):
        append(store, [SMALL, replace(SMALL, verdict="slowish")])  # type: ignore[arg-type]
    assert history(store, F) == runs
