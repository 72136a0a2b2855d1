"""`benchax bisect`: what it says of bad input, and the whole of it on a small repository."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command_line import Benchax
from git_repositories import git

from benchax.cli.compare import FOUND, SEVERAL_LEFT, show_bisected
from benchax.paired_runs.bisect import Bisected


def test_a_commit_that_there_is_not_and_a_folder_without_git_are_refused(repository: Path, benchax: Benchax) -> None:
    assert "there is no commit 'nothing'" in benchax("bisect", "nothing", "main").err
    shutil.rmtree(repository / ".git")
    done = benchax("bisect", "main", "HEAD")
    assert (done.code, "git" in done.err) == (2, True)


def test_the_first_that_is_slower_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_bisected(Bisected(("b",)), lambda one: f"commit {one}") == FOUND

    assert capsys.readouterr().out == "commit b is the first that is slower\n"


def test_the_range_that_is_left_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_bisected(Bisected(("b", "c")), lambda one: f"commit {one}") == SEVERAL_LEFT

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("one of these 2 is the first that is slower")
    assert rest == ["  commit b", "  commit c"]


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    return project
