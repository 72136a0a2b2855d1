"""`benchax history`: stored comparisons, shown as a series. Nothing is measured here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax
from comparisons_by_hand import BASELINE, CASE, commit_of, counted, series, stepping

from benchax.model import CaseId, Comparison
from benchax.store import comparisons
from benchax.store.database import open_store

LARGE = CaseId("matmul", (("n", 512),))
FFT = CaseId("fft")


@pytest.fixture
def history(benchax: Benchax) -> Benchax:
    return partial(benchax, "history")


def stored(project: Path, *listed: Sequence[Comparison]) -> None:
    store = open_store(project / ".benchmarks")
    for each in listed:
        comparisons.append(store, each)


@pytest.fixture
def three(project: Path) -> None:
    """Histories of three cases; one of them by its peak of memory as well."""
    stored(
        project,
        series(stepping([(20, 1.0), (20, 1.12)], sd=0.001)),
        series([1.0, 1.0], case=LARGE),
        series([1.0], case=FFT),
        [counted(n, size, case=FFT) for n, size in enumerate([2.0**20, 2.0**21])],
    )


# ---- shown ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("matmul[n=256]",), (), ("--metric", "peak")], ids=["a case", "all", "by peak"])
def test_one_case_is_shown_with_its_changes_and_several_as_a_list(
    words: tuple[str, ...], history: Benchax, three: None, snapshot: Any
) -> None:
    done = history(*words)

    assert (done.code, done.err) == (0, "")
    assert done.out == snapshot


@pytest.mark.parametrize("pattern", ["matmul", "mat*", "*[n=*"])
def test_a_name_of_several_cases_lists_them(pattern: str, history: Benchax, three: None) -> None:
    done = history(pattern)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["matmul[n=256]", "matmul[n=512]"]


def test_the_baseline_of_the_newest_comparison_is_taken_and_others_are_named(history: Benchax, project: Path) -> None:
    older = replace(BASELINE, label="v1.1")
    stored(project, series([1.0]), series([1.0, 1.1], baseline=older), series([1.0, 1.0, 1.0]))

    done, other = history("matmul"), history("matmul", "--baseline", "v1.1")

    assert "against v1.2 · 4 comparisons" in done.out
    assert done.err == "also compared with: v1.1; choose by --baseline\n"
    assert "against v1.1 · 2 comparisons" in other.out


def test_json_holds_the_whole_history_of_each_case_one_per_line(history: Benchax, three: None) -> None:
    done = history("matmul", "--json")

    one, other = map(json.loads, done.out.splitlines())
    assert one["case"] == {
        "name": "matmul", "params": [["n", 256]], "variant": "", "tag": "", "label": "matmul[n=256]",
    }  # fmt: skip
    assert (one["metric"], one["baseline"], len(one["points"]), one["breaks"]) == ("run", "v1.2", 40, [])
    assert [(c["at"], c["last"]) for c in one["changes"]] == [(20, 19)]
    assert one["changes"][0]["factor"] == pytest.approx(1.12, abs=0.01)
    point = other["points"][1]
    assert (point["commit"], point["ratio"], point["verdict"]) == (commit_of(1), 1.0, "same")
    assert point["fingerprint"] == one["points"][0]["fingerprint"]


@pytest.mark.parametrize(
    "case", [CaseId('a,b\n"c" 🦊', (("gap", float("nan")), ("limit", float("inf")))), CaseId("[*?")]
)
def test_any_case_has_a_history(case: CaseId, history: Benchax, project: Path) -> None:
    stored(project, series([1.0, 1.1], case=case))

    assert [history(*words).code for words in ([], [case.name], [case.label], ["--json"])] == [0, 0, 0, 0]


def test_cases_that_share_a_label_are_both_there(history: Benchax, project: Path) -> None:
    stored(project, series([1.0]), series([1.0], case=replace(CASE, params=(("n", "256"),))))

    assert [line.split()[0] for line in history("matmul[n=256]").out.splitlines()[1:]] == ["matmul[n=256]"] * 2
