"""Which row a new one is compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from csv_rows_by_hand import a_file, a_row

from pytest_jax_bench import baseline
from pytest_jax_bench.csv import files
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


def test_rows_of_other_tags_are_passed_over_unread_however_many_they_are(csv: Path) -> None:
    between = [a_row(commit=B) for _ in range(100)]
    stored = a_file(csv, a_row(tag="rare", commit=A), *between, a_row(tag="rare", commit=B))
    read = list[str]()
    parse = files.parse

    def note(text: str, form: Any) -> Any:
        read.append(text)
        return parse(text, form)

    with patch.object(files, "parse", note):
        reference = baseline.find_reference(stored, csv, PluginSettings())

    assert reference is not None
    assert (reference["commit"], reference["run_id"]) == (A, 0)
    assert len(read) == 2
