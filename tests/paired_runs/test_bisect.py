"""The search for the first that is slower: with judges that know, and with commits of a real repository."""

from __future__ import annotations

from pathlib import Path

import pytest
from git_repositories import git
from hypothesis import given
from hypothesis import strategies as st
from refusals import refusal

from benchax.checkouts.launch import Selection
from benchax.comparing.sequential import Effort
from benchax.errors import UsageError
from benchax.paired_runs.bisect import NEIGHBOURS, bisect, list_commits, list_releases, make_commit_judge, verdict_of
from benchax.stats.verdicts import Verdict

pytestmark = pytest.mark.usefixtures("kept_pools")


class Judge:
    """Knows which is the first bad one, and says nothing of some."""

    def __init__(self, first_bad: int, unclear: set[int] = frozenset()) -> None:  # pyright: ignore[reportArgumentType]
        self.first_bad, self.unclear = first_bad, unclear
        self.asked: list[int] = []

    def __call__(self, one: str) -> Verdict:
        self.asked.append(int(one))
        if int(one) in self.unclear:
            return "unclear"
        return "slower" if int(one) >= self.first_bad else "same"


def row(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def test_releases_are_in_the_order_of_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchax.paired_runs.bisect.list_versions", lambda: ["0.9.2", "0.10.0", "0.10.2", "0.11.0"])

    assert list_releases("0.9.2", "0.10.2") == ["0.9.2", "0.10.0", "0.10.2"]
    assert refusal(list_releases, "0.10.2", "0.9.2").startswith("jax 0.9.2 does not come after jax 0.10.2\n")
    assert "such as 0.10.0, 0.10.2, 0.11.0" in refusal(list_releases, "0.9.2", "0.12")


@given(st.data())
def test_the_first_bad_one_is_found_in_few_steps(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 300))
    judge = Judge(data.draw(st.integers(1, n - 1)))

    found = bisect(row(n), judge)

    assert found.first_bad == str(judge.first_bad)
    assert len(judge.asked) <= 1 + (n - 1).bit_length()


@given(st.data())
def test_what_is_left_holds_the_first_bad_one_whatever_is_unclear(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 40))
    unclear = data.draw(st.sets(st.integers(1, n - 1))) - {n - 1}
    judge = Judge(data.draw(st.integers(1, n - 1)), unclear)

    found = bisect(row(n), judge)

    assert str(judge.first_bad) in found.left
    assert len(judge.asked) == len(set(judge.asked))
    assert list(found.verdicts) == [str(i) for i in judge.asked]


def test_neighbours_are_asked_where_the_middle_is_unclear_and_the_search_ends_where_they_are_too() -> None:
    judge, lost = Judge(first_bad=7, unclear={4, 5}), Judge(first_bad=50, unclear=set(range(1, 99)))

    assert bisect(row(10), judge).first_bad == "7"
    assert judge.asked[:3] == [9, 4, 3]
    found = bisect(row(100), lost)
    assert (found.first_bad, found.left) == (None, tuple(row(100)[1:]))
    assert len(lost.asked) == 1 + 1 + NEIGHBOURS
    assert verdict_of([]) == "unclear"


@pytest.mark.parametrize(
    ("n", "first_bad", "words"), [(5, 9, "4 is not slower than 0: same"), (1, 1, "0 is not slower")]
)
def test_nothing_is_searched_between_two_that_are_alike(n: int, first_bad: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        bisect(row(n), Judge(first_bad))


# ---- commits ------------------------------------------------------------------------------------------------------

BENCH = "import benchax, work\n@benchax.benchmark(args=('f32[1000]',))\ndef f(x): return work.f(x)\n"
WORK = "import jax, jax.numpy as jnp\n# {}\ndef f(x): return jax.lax.fori_loop(0, {}, lambda i, x: jnp.sin(x), x)\n"


@pytest.fixture
def repository(project: Path) -> Path:
    git(Path.cwd(), "init", "-q", "-b", "main")
    (project / "bench_work.py").write_text(BENCH)
    for subject, steps in [("first", 50), ("words", 50), ("slower", 200), ("more words", 200)]:
        commit(subject, steps)
    return project


def commit(subject: str, steps: int) -> None:
    Path("work.py").write_text(WORK.format(subject, steps))
    git(Path.cwd(), "add", ".")
    git(Path.cwd(), "commit", "-q", "-m", subject)


def subjects(good: str, bad: str) -> list[str]:
    return [git(Path.cwd(), "show", "-s", "--format=%s", each) for each in list_commits(good, bad)]


def test_commits_are_listed_from_good_to_bad_along_first_parents(repository: Path) -> None:
    assert subjects("HEAD~2", "main") == ["words", "slower", "more words"]
    git(Path.cwd(), "checkout", "-q", "-b", "side", "HEAD~1")
    commit("beside", 50)
    git(Path.cwd(), "checkout", "-q", "main")
    git(Path.cwd(), "merge", "-q", "-s", "ours", "--no-edit", "side")

    assert subjects("HEAD~1", "HEAD")[1:] == ["Merge branch 'side'"]


@pytest.mark.parametrize(("good", "bad"), [("main", "HEAD~1"), ("main", "main"), ("side", "main")])
def test_good_must_come_before_bad(good: str, bad: str, repository: Path) -> None:
    git(Path.cwd(), "branch", "side", "HEAD~1")
    git(Path.cwd(), "checkout", "-q", "side")
    commit("beside", 50)

    with pytest.raises(UsageError, match="does not come after"):
        list_commits(good, bad)


@pytest.mark.slow
@pytest.mark.serial
def test_a_commit_whose_programs_are_known_is_not_measured_again(repository: Path) -> None:
    first, words, slower, more_words = list_commits("HEAD~3", "HEAD")
    measured: list[object] = []

    with make_commit_judge(first, Selection(("bench_work.py",)), Effort(), report=measured.append) as judge:
        same = judge(words)
        assert measured == []
        verdicts = [judge(slower)]
        steps = len(measured)
        verdicts.append(judge(more_words))

    assert (same, verdicts) == ("same", ["slower", "slower"])
    assert len(measured) == steps
