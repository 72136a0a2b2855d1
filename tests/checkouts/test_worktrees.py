"""Benchmarks of another commit, in real git repositories."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from git_repositories import git
from jax import export

from benchax.checkouts import worktrees
from benchax.checkouts.launch import Selection
from benchax.checkouts.worktrees import build_checkout
from benchax.discovery import import_file
from benchax.errors import UsageError
from benchax.paired_runs import process_pairs

PACKAGE = "import jax.numpy as jnp\n\ndef double(x):\n    return {expression}\n"
BENCH = """
import benchax
from doubling import double

@benchax.benchmark(args=("f32[8]",))
def bench_double(x):
    return double(x)
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in src/ and its benchmarks; the last change is not committed."""
    folder = (tmp_path / "a project").resolve()
    (folder / "src").mkdir(parents=True)
    (folder / "benchmarks").mkdir()
    (folder / "src" / "doubling.py").write_text(PACKAGE.format(expression="x + x"))
    (folder / "benchmarks" / "bench_doubling.py").write_text(BENCH)
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "src" / "doubling.py").write_text(PACKAGE.format(expression="x * 2 + jnp.sin(x)"))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder / "src"), *sys.path])
    return folder


@pytest.mark.slow
def test_the_package_of_the_other_commit_is_what_is_built(project: Path) -> None:
    with build_checkout("main", Selection(("benchmarks",))) as other:
        (row,) = other.rows.values()
        assert row.program is not None
        content = row.program.content or b""

        assert row.case.name == "bench_double"
        assert row.environment.commit == git(project, "rev-parse", "main")
        assert other.benchmarks == "of now"
    assert "sine" not in export.deserialize(bytearray(content)).mlir_module()
    assert len(git(project, "worktree", "list").splitlines()) == 1
    assert git(project, "status", "--porcelain") == "M src/doubling.py"


@pytest.mark.slow
def test_a_package_that_is_not_installed_is_found_by_both_commits(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(project / "src")])

    with build_checkout("main", Selection(("benchmarks",))) as other:
        now = import_file(project / "benchmarks" / "bench_doubling.py")

    assert next(iter(other.rows)).name == "bench_double"
    assert now.double.__module__ == "doubling"
    assert Path(sys.modules["doubling"].__file__ or "").is_relative_to(project)


@pytest.mark.slow
@pytest.mark.parametrize("is_ignored", [False, True])
def test_a_module_that_the_other_commit_lacks_is_taken_from_now_only_where_git_ignores_it(
    project: Path, is_ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where PYTHONPATH leads to it. What git ignores is a dependency that both commits have."""
    (project / "lib").mkdir()
    (project / "lib" / "new_one.py").write_text("")
    (project / ".git" / "info" / "exclude").write_text("lib\n" if is_ignored else "")
    (project / "benchmarks" / "bench_doubling.py").write_text(f"import new_one\n{BENCH}")
    monkeypatch.syspath_prepend(project / "lib")
    monkeypatch.setenv("PYTHONPATH", str(project / "lib"))

    with build_checkout("main", Selection(("benchmarks",))) as other:
        assert other.benchmarks == ("of now" if is_ignored else "of that commit")
        assert ("No module named 'new_one'" in other.note) is not is_ignored


FINDER = """
import importlib.util, sys
class Finder:
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, FILE) if name == "doubling" else None
sys.meta_path.append(Finder)
"""


@pytest.mark.slow
def test_a_package_of_now_that_a_hook_brings_into_the_other_commit_is_refused(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now would be compared with itself. Some editable installations have such a hook."""
    git(project, "mv", "src", "odd")
    git(project, "commit", "-qam", "moved")
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(f"FILE = {str(project / 'odd' / 'doubling.py')!r}\n{FINDER}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hook"), prepend=os.pathsep)
    # `syspath_prepend` of an earlier test can have left its own package.
    monkeypatch.setattr(sys, "path", [path for path in sys.path if "a project" not in path])

    error = refused("main")

    assert error.problem.startswith("the benchmarks cannot be built at main (")
    assert error.problem.partition(": ")[2].startswith(
        "odd/doubling.py was imported as it is now, and not as it is in "
    )


@pytest.mark.slow
def test_benchmarks_that_do_not_run_there_give_way_to_its_own(project: Path) -> None:
    (project / "src" / "doubling.py").write_text("def renamed(x):\n    return x\n")
    bench = project / "benchmarks" / "bench_doubling.py"
    bench.write_text(BENCH.replace("double", "renamed").replace("f32[8]", "f32[9]"))

    with build_checkout("main", Selection(("benchmarks",))) as other:
        (row,) = other.rows.values()

        assert (row.case.name, row.signature) == ("bench_double", "f32[8]")
        assert other.benchmarks == "of that commit"
        assert "the current benchmark files do not run at main" in other.note
        assert "cannot import name 'renamed'" in other.note


@pytest.mark.slow
def test_a_case_that_ends_its_process_or_hangs_while_it_is_built_says_so_and_the_others_go_on(project: Path) -> None:
    bench, crash = (
        project / "benchmarks" / "bench_doubling.py",
        BENCH.replace("return double(x)", "__import__('os')._exit(7)"),
    )
    hang = BENCH.replace("return double(x)", "__import__('time').sleep(1000)")
    bench.write_text(crash.replace("bench_double", "crashes") + hang.replace("bench_double", "hangs") + BENCH)

    with build_checkout("main", Selection(("benchmarks",), options={"timeout_s": 5.0})) as other:
        rows = {case.name: row for case, row in other.rows.items()}

    assert "exit code 7" in rows["crashes"].failure.message
    assert rows["hangs"].failure.kind == "timeout"
    assert rows["bench_double"].program is not None


def refused(ref: str) -> UsageError:
    with pytest.raises(UsageError) as error, build_checkout(ref, Selection(("benchmarks",))):
        pass
    return error.value


def test_what_is_no_commit_of_a_repository_is_said_with_the_nearest(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = refused("mian")

    assert unknown.problem.startswith("there is no commit 'mian'")
    assert unknown.hint == "did you mean 'main'?"
    assert "there is no commit '--help'" in str(refused("--help"))
    with pytest.raises(UsageError, match="is that of now"), worktrees.launch_checkout("main", [str(project)]):
        pass
    monkeypatch.chdir(tmp_path)
    assert "not a git repository" in str(refused("main"))
    assert worktrees.label_commit("main", "0123456789ab") == "main (01234567)"
    assert worktrees.label_commit("012345", "0123456789ab") == "01234567", "a hash is not said twice"


def test_a_shallow_clone_and_a_repository_of_another_user_are_named_with_the_command_that_helps(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(project, "commit", "-qam", "second")
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "clone")
    monkeypatch.chdir(tmp_path / "clone")

    error = refused("HEAD~1")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    foreign = refused("main")

    assert "there is no commit 'HEAD~1' in " in error.problem
    assert error.problem.endswith("clone, which is a shallow clone")
    assert error.hint == "git fetch --unshallow"
    assert "detected dubious ownership in repository at" in foreign.problem
    assert "git config --global --add safe.directory" in foreign.hint


@pytest.mark.slow
def test_a_worktree_that_a_crash_left_behind_is_removed_and_those_of_others_stay(project: Path, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left, alive, foreign = (
        tmp_path / f"{worktrees.PREFIX}{gone.pid}-x",
        tmp_path / f"{worktrees.PREFIX}{os.getpid()}-y",
        tmp_path / "mine",
    )
    for tree in (left, alive, foreign):
        git(project, "worktree", "add", "-q", "--detach", str(tree), "main")

    with build_checkout("main", Selection(("benchmarks",))):
        listed = git(project, "worktree", "list")

    assert str(left) not in listed
    assert not left.exists()
    assert str(alive) in listed
    assert str(foreign) in listed


def test_inside_a_hook_of_git_the_index_of_now_stays_as_it_is(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(project, "add", ".")
    staged = git(project, "diff", "--cached")
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(project / ".git" / "index"))

    with worktrees.launch_checkout("main", ["benchmarks"]) as (there, _):
        assert (there.folder / "src" / "doubling.py").read_text() == PACKAGE.format(expression="x + x")

    assert git(project, "diff", "--cached") == staged


@pytest.mark.slow
def test_benchmarks_that_run_nowhere_are_an_error_in_words(project: Path) -> None:
    git(project, "stash", "-q")
    bench = project / "benchmarks" / "bench_doubling.py"
    bench.write_text("raise ValueError('broken since ever')\n")
    git(project, "commit", "-qam", "broken")

    error = refused("main")

    assert error.problem.startswith("the benchmarks cannot be built at main ")
    assert "broken since ever" in error.problem


def test_an_environment_inside_of_the_repository_is_not_moved(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = project / ".venv" / "lib" / "site-packages"
    packages.mkdir(parents=True)
    tree = project.parent / "tree"
    (tree / "src").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(project / "src"), str(packages), "/usr/lib"])

    launch = worktrees._launch("main", "0123456789ab", project, tree)

    assert launch.paths == (str(tree / "src"), str(tree), str(packages), "/usr/lib")


@pytest.mark.slow
@pytest.mark.serial
def test_whole_processes_of_another_commit_see_what_python_costs(project: Path) -> None:
    """The package of now sleeps while it is traced, which no program shows, and process pairs do: in building."""
    (project / "src" / "doubling.py").write_text(
        "import time\n\ndef double(x):\n    time.sleep(0.5)\n    return x + x\n"
    )

    with worktrees.launch_checkout("main", ["benchmarks"]) as sides:
        found = process_pairs.compare_launches(sides, Selection(("benchmarks",)), max_time_s=0.001)

    compiling = next(c for c in found if c.metric == "compile")
    assert (compiling.baseline.label, compiling.candidate.label) == (
        f"main ({git(project, 'rev-parse', 'main')[:8]})",
        "now",
    )
    assert (compiling.ratio or 0) > 3
    assert len(git(project, "worktree", "list").splitlines()) == 1
