"""Comparisons come back as they were, in order, whoever stores them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from measurement_strategies import RICH, exact, measured, values_of

from benchax.codec import decode_comparison, encode_comparison
from benchax.errors import FormatError
from benchax.model import Block, CaseId, Comparison, Failure, Numerics, Remark, Version
from benchax.store.comparisons import append, history
from benchax.store.database import DatabaseStore, open_store

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


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"benchax": 99}', "{", encode_comparison(SMALL)[:-5]])
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        decode_comparison(text)


def test_a_verdict_that_there_is_not_is_refused() -> None:
    document = json.loads(encode_comparison(SMALL)) | {"verdict": "slowish"}

    with pytest.raises(FormatError, match="slowish"):
        decode_comparison(json.dumps(document))


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


def test_all_or_none_are_stored(store: DatabaseStore) -> None:
    append(store, [SMALL])
    wrong = replace(SMALL, verdict="slowish")  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="slowish"):
        append(store, [SMALL, wrong])

    assert history(store, F) == [SMALL]


WRITER = """
import sys
from benchax.model import CaseId, Comparison, Version
from benchax.store.comparisons import append
from benchax.store.database import open_store
where, who = sys.argv[1:]
store = open_store(where)
sys.stdin.readline()
for i in range(20):
    append(store, [Comparison(CaseId("f"), "run", Version(who), Version(str(i)), "same")])
"""


def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WRITER, str(tmp_path / "new")]
    writers = [
        subprocess.Popen([*command, who], stdin=subprocess.PIPE, env=os.environ | {"JAX_PLATFORMS": "cpu"})
        for who in ("one", "other")
    ]
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"\n")
        writer.stdin.close()
    assert [writer.wait(60) for writer in writers] == [0, 0]

    store = open_store(tmp_path / "new")
    for who in ("one", "other"):
        assert [c.candidate.label for c in history(store, CaseId("f"), baseline=who)] == [str(i) for i in range(20)]
