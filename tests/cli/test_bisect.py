"""`benchax bisect`: what it says of bad input, and the whole of it on a small repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repositories import git

from benchax.cli.bisect import FOUND, SEVERAL_LEFT, _show, bisect
from benchax.errors import UsageError
from benchax.paired_runs.bisect import Bisected


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "bisect '' is not enough\nexpected GOOD BAD"),
        ({"what": ["main"]}, "bisect 'main' is not enough"),
        ({"jax": "0.9.2"}, "two versions or more"),
        ({"jax": "0.9.2,0.9.2"}, "all different"),
        ({"jax": "0.9.2,"}, "two versions or more"),
        ({"what": ["nothing", "main"]}, "there is no commit 'nothing'"),
        ({"what": ["main", "main"], "max_time": "soon"}, "soon"),
    ],
)
def test_what_cannot_be_searched_is_said(arguments: dict[str, object], words: str, repository: Path) -> None:
    with pytest.raises(UsageError) as caught:
        bisect(**({"what": None, "pattern": "", "params": None, "jax": None, "max_time": None} | arguments))  # pyright: ignore[reportArgumentType]

    assert words in str(caught.value)


def test_outside_of_a_repository_it_says_so(project: Path) -> None:
    with pytest.raises(UsageError, match="git"):
        bisect(what=["main", "HEAD"], pattern="", params=None, jax=None, max_time=None)


def test_the_first_that_is_slower_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert _show(Bisected("a", ("b",)), lambda one: f"commit {one}") == FOUND

    assert capsys.readouterr().out == "commit b is the first that is slower\n"


def test_the_range_that_is_left_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _show(Bisected("a", ("b", "c")), lambda one: f"commit {one}") == SEVERAL_LEFT

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("one of these 2 is the first that is slower")
    assert rest == ["  commit b", "  commit c"]


@pytest.fixture
def repository(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    git(project, "commit", "-q", "--allow-empty", "-m", "first")
    return project
