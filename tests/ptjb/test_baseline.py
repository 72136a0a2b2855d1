"""Which row a new one is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from csv_rows_by_hand import a_file, a_row

from pytest_jax_bench import baseline
from pytest_jax_bench.baseline import COMPILE_FACTOR, FACTORS, MetricVerdict, judge
from pytest_jax_bench.options import Pin, PluginSettings

PLAIN = PluginSettings()
A, B = "aaaaaaa", "bbbbbbb"


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    return tmp_path / "main.csv"


def chosen(csv: Path, *commits: str, settings: PluginSettings = PLAIN, **last) -> tuple[str, int] | None:
    """(commit, its run) of what the last of these runs is compared with."""
    rows = [a_row(commit=commit) for commit in commits[:-1]]
    stored = a_file(csv, *rows, a_row(commit=commits[-1], **last))
    reference = baseline.find_reference(stored, csv, settings)
    return (reference["commit"], reference["commit_run"]) if reference else None


@pytest.mark.parametrize(
    ("commits", "expected"),
    [
        ([A], None),
        ([A, A], (A, 0)),
        ([A, A, A], (A, 0)),
        ([A + "+", A], (A + "+", 0)),
        ([A, A + "+"], (A, 0)),
        ([A, B], (A, 0)),
        ([A, A, A + "+", B], (A, 1)),
        ([A + "+", B], (A + "+", 0)),
        ([A, B, A], (A, 0)),
        ([A, B, "ccccccc"], (B, 0)),
        (["unknown", "unknown"], ("unknown", 0)),
    ],
)
def test_the_first_run_of_the_commit_or_the_newest_clean_one_of_the_previous(csv, commits, expected) -> None:
    assert chosen(csv, *commits) == expected


@pytest.mark.parametrize(
    ("pin", "expected"),
    [
        (Pin(A, None), (A, 0)),
        (Pin("aaa", 1), (A, 1)),
        (Pin(A + "0123456789", None), (A, 0)),
        (Pin(None, 1), (B, 1)),
        (Pin(A, 7), None),
        (Pin("fff", None), None),
    ],
)
def test_a_pin_names_a_commit_and_a_run_of_it(csv, pin, expected) -> None:
    assert chosen(csv, A, A, B, B, B, settings=PluginSettings(pin=pin)) == expected
    assert chosen(csv, A, A, settings=PluginSettings(no_compare=True)) is None


def test_commits_that_0_5_0_named_after_tags_are_found_by_their_hash(csv) -> None:
    assert chosen(csv, "v0.2-3-g" + A, B, B, settings=PluginSettings(pin=Pin(A, None))) == ("v0.2-3-g" + A, 0)


def test_other_tags_failures_and_rows_of_the_same_session_are_no_references(csv) -> None:
    a_file(csv, a_row(tag="other"), a_row(status="error"), a_row(tag="mine", status="timeout"))
    assert chosen(csv, B, B, tag="mine") is None

    stored = a_file(csv, a_row(tag="again"))
    assert stored["session"] == a_file(csv, a_row(tag="again"))["session"]
    assert baseline.find_reference(stored, csv, PluginSettings()) is None


@pytest.mark.parametrize("earlier", [1, 64])
def test_a_long_history_is_searched_up_to_its_beginning(csv, earlier, monkeypatch) -> None:
    monkeypatch.setattr("os.fsync", lambda descriptor: None)
    for commit in (A, B):
        rows = [a_row(commit=commit) for _ in range(earlier)]
        for i, row in enumerate(rows):
            given = {k: v for k, v in row.items() if k not in ("run_id", "commit_run")}
            stored = baseline.csv_files.append(
                csv, {**given, "session": f"{commit}{i}"}, nodeid="t", backend="cpu", device="cpu"
            )

    reference = baseline.find_reference(stored, csv, PluginSettings())
    assert (reference["commit"], reference["commit_run"]) == ((B, 0) if earlier > 1 else (A, 0))
    assert baseline.find_reference(stored, csv, PluginSettings(pin=Pin(A, 0)))["run_id"] == 0
    assert baseline.find_reference(stored, csv, PluginSettings(pin=Pin("f", 0))) is None


def test_bytes_of_the_peer_are_not_judged() -> None:
    """Its peak leaves out the temporaries on CPU: a difference would be one of counting."""
    old, new = a_row(environment="", jit_peak_bytes=100), a_row(jit_peak_bytes=200)

    assert baseline.judge_metrics(old, new)["jit_peak_bytes"].verdict == "unclear"
    assert baseline.judge_metrics(a_row(jit_peak_bytes=100), new)["jit_peak_bytes"].verdict == "slower"
    assert set(baseline.judge_metrics(a_row(), a_row())) == {"jit", "compile", "jit_peak_bytes"}


def test_only_the_reference_is_read_however_many_rows_there_are(csv: Path) -> None:
    between = [a_row(commit=B) for _ in range(100)]
    stored = a_file(csv, a_row(tag="rare", commit=A), *between, a_row(tag="rare", commit=B))

    with patch.object(baseline, "parse", wraps=baseline.parse) as read:
        reference = baseline.find_reference(stored, csv, PluginSettings())

    assert reference is not None
    assert (reference["commit"], reference["run_id"]) == (A, 0)
    assert read.call_count == 1


def test_a_damaged_row_is_no_reference(csv: Path) -> None:
    stored = a_file(csv, *(a_row(tag=tag) for tag in ("t", "t", "t")))
    csv.write_text(csv.read_text().replace(" t ", " t  x ", 1))

    reference = baseline.find_reference(stored, csv, PluginSettings())

    assert reference is not None
    assert reference["run_id"] == 1


# ---- what is said of two rows that were measured in different sessions: hardly ever more than they can support ------

SESSIONS = Path(__file__).parent.parent / "data" / "sessions.npz"
"""Recordings of unchanged functions; its README entry describes them."""


def measured_row(**changes: Any) -> dict[str, Any]:
    usual = {
        "environment": "0123456789ab", "timer": "wall", "jit_rounds": 20, "eager_rounds": 20, "compile_ms": 50.0,
        "jit_min_ms": 1.0, "jit_median_ms": 1.2, "eager_min_ms": 2.0, "eager_median_ms": 2.2,
        "jit_peak_bytes": 1000, "jit_constants_bytes": 4, "jit_temporary_bytes": 0, "eager_peak_bytes": 2000,
    }  # fmt: skip
    return usual | changes


@pytest.mark.parametrize("rounds", [(20, 20), (10, 10), (5, 5), (3, 3), (20, 10), (20, 5), (5, 20), (3, 20), (20, 3)])
def test_unchanged_code_is_called_slower_or_faster_in_less_than_one_comparison_in_a_hundred(rounds) -> None:
    """Each of 21 sessions against each other one, for six functions: recorded, on a busy machine."""
    with np.load(SESSIONS) as recorded:
        functions = [recorded[name] for name in recorded.files if name != "README"]
    found = []
    for times_ms in functions:
        for i, j in np.argwhere(~np.eye(len(times_ms), dtype=bool)):
            old, new = times_ms[i, 0, : rounds[0]], times_ms[j, 1, : rounds[1]]
            rows = [
                measured_row(jit_min_ms=float(t.min()), jit_median_ms=float(np.median(t)), jit_rounds=len(t))
                for t in (old, new)
            ]
            found.append(judge(*rows, "jit").verdict)

    assert len(found) == 6 * 21 * 20
    assert found.count("slower") / len(found) < 0.01
    assert found.count("faster") / len(found) < 0.01


@pytest.mark.parametrize("kind", ["jit", "eager"])
def test_a_factor_in_the_least_and_the_median_is_called(kind: str) -> None:
    def scaled(least: float, median: float) -> dict[str, Any]:
        return measured_row(
            **{
                f"{kind}_min_ms": measured_row()[f"{kind}_min_ms"] * least,
                f"{kind}_median_ms": measured_row()[f"{kind}_median_ms"] * median,
            }
        )

    assert judge(measured_row(), scaled(3, 6), kind) == MetricVerdict("slower", "3.00 times the older one, or more")
    assert judge(measured_row(), scaled(0.125, 0.25), kind) == MetricVerdict("faster", "4.00 times as fast, or more")
    assert judge(measured_row(), scaled(0.99 * FACTORS[0][1], 9), kind).verdict == "unclear"
    assert judge(measured_row(), scaled(1.1, 9), kind).verdict == "unclear"
    assert judge(measured_row(), scaled(0.4, 1.1), kind).verdict == "unclear"


@pytest.mark.parametrize("kind", ["jit", "eager"])
@pytest.mark.parametrize(("before_ms", "after_ms", "verdict"), [(0.007, 0.106, "unclear"), (0.06, 0.165, "slower")])
def test_a_change_of_less_than_a_tenth_of_a_millisecond_is_unclear(before_ms, after_ms, verdict, kind: str) -> None:
    old, new = (measured_row(**{f"{kind}_min_ms": t, f"{kind}_median_ms": t}) for t in (before_ms, after_ms))

    assert judge(old, new, kind).verdict == verdict


@pytest.mark.parametrize(("rounds", "factor"), [(30, 2.5), (20, 2.5), (19, 3), (10, 3), (9, 4), (5, 4), (4, 6), (3, 6)])
def test_fewer_rounds_take_a_greater_factor(rounds: int, factor: float) -> None:
    def scaled(by: float) -> dict[str, Any]:
        return measured_row(
            jit_rounds=rounds,
            jit_min_ms=by * measured_row()["jit_min_ms"],
            jit_median_ms=by * measured_row()["jit_median_ms"],
        )

    assert judge(measured_row(), scaled(1.01 * factor), "jit").verdict == "slower"
    assert judge(measured_row(), scaled(0.99 / factor), "jit").verdict == "faster"
    assert judge(measured_row(), scaled(0.99 * factor), "jit").verdict == "unclear"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "times of two sessions can't resolve factors below 2.50"),
        ({"environment": "ba9876543210"}, "they were measured in different environments"),
        ({"environment": ""}, "where the older row was measured is not known"),
        ({"timer": "in_graph"}, "one was timed by in_graph, one by wall"),
        ({"timer": ""}, "one was timed by an unknown timer, one by wall"),
        ({"jit_median_ms": float("nan")}, "one of them has no least and median time"),
        ({"jit_min_ms": 0.0}, "one of them has no least and median time"),
        ({"jit_rounds": 19}, "times of two sessions can't resolve factors below 3.00 at fewer than 20 rounds"),
        ({"jit_rounds": 5}, "times of two sessions can't resolve factors below 4.00 at fewer than 10 rounds"),
        ({"jit_rounds": 2}, "fewer than 3 rounds"),
    ],
)
def test_what_is_unclear_has_its_reason(changes: dict[str, Any], why: str) -> None:
    assert judge(measured_row(**changes), measured_row(), "jit") == MetricVerdict("unclear", why)


@pytest.mark.parametrize("metric", ["jit_peak_bytes", "jit_constants_bytes", "jit_temporary_bytes"])
def test_bytes_that_the_compiler_counts_are_compared_exactly(metric: str) -> None:
    more = measured_row(**{metric: measured_row()[metric] + 1})

    assert judge(measured_row(), measured_row(), metric) == MetricVerdict("same", "to the byte")
    assert judge(measured_row(), more, metric) == MetricVerdict("slower", "counted by the compiler")
    assert judge(more, measured_row(), metric) == MetricVerdict("faster", "counted by the compiler")
    assert judge(measured_row(**{metric: -1}), measured_row(), metric) == MetricVerdict(
        "unclear", "one of them was not measured"
    )
    assert (
        judge(measured_row(environment="ba9876543210"), measured_row(), metric).verdict == "same"
    )  # still those of the program


@pytest.mark.parametrize(
    ("old", "new", "metric", "verdict"),
    [
        (measured_row(), measured_row(compile_ms=50 * (COMPILE_FACTOR - 1)), "compile", "unclear"),  # single readings
        (measured_row(), measured_row(compile_ms=50 * COMPILE_FACTOR * 1.01), "compile", "slower"),
        (measured_row(), measured_row(compile_ms=0.99 * 50 / COMPILE_FACTOR), "compile", "faster"),
        (measured_row(compile_ms=float("nan")), measured_row(), "compile", "unclear"),
        (measured_row(), measured_row(eager_peak_bytes=2001), "eager_peak_bytes", "unclear"),  # observed
    ],
)
def test_what_is_less_certain_needs_more(old, new, metric: str, verdict: str) -> None:
    assert judge(old, new, metric).verdict == verdict
