"""The benchmarks of another commit: built in a git worktree, kept as programs, then run together with the current ones.

    git worktree add --detach TMP COMMIT  →  a process in TMP builds the cases  →  programs  →  paired runs

The other commit's package is imported from the worktree: every folder on sys.path inside the repository is replaced by
the same folder there. Only the build happens there; timed programs run later, in separate processes. Submodules are
left alone.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import psutil

from benchax.checkouts.launch import Launch, Selection, run_command
from benchax.checkouts.partners import Listing, Partner, build_case
from benchax.discovery import files
from benchax.environment import capture, git_variables
from benchax.errors import UsageError
from benchax.measuring.record import RemoteRow
from benchax.model import CaseId, Measurement, Version
from benchax.options import DEFAULTS
from benchax.workers.executors import with_program
from benchax.workers.task import Failed

PREFIX = "benchax-worktree-"
USUAL = ("src", "")
"""Folders of a repository that usually hold packages."""


@dataclass(frozen=True)
class BuiltCheckout:
    """The rows of another commit, with their programs."""

    label: str
    commit: str
    rows: dict[CaseId, Measurement]
    benchmarks: str
    """Whose benchmark files ran there: "of now", or "of that commit"."""
    note: str = ""


@contextmanager
def build_checkout(
    ref: str, selection: Selection, own_benchmarks: bool = False
) -> Generator[BuiltCheckout, None, None]:
    """Builds the benchmarks at `ref`; removes the worktree afterwards.

    Args:
        own_benchmarks: uses the benchmark files of `ref`. Otherwise the current files run against the package of `ref`;
            if that fails, the files of `ref` run.

    Raises:
        UsageError: no git repository, no such commit, or benchmarks that cannot be built there.
    """
    with _checkout(ref) as (top, commit, tree):
        _find_usual_packages(top)
        launch, note, rows = _launch(ref, commit, top, tree), "", dict[CaseId, Measurement]()
        if not own_benchmarks:
            changed = _bring(selection.what, top, tree)
            rows, problem = _build(selection, launch, top, tree)
            if problem:
                git(tree, "checkout", "--quiet", "--force", commit)  # back to the files that were written over
                note = f"the current benchmark files do not run at {ref}, so its own were used: {problem}"
            elif changed:
                note = (
                    f"both versions ran the current {' and '.join(changed)}, which differs at {ref}; --benchmarks "
                    "ref runs each version with its own"
                )
        if own_benchmarks := not rows:
            rows, problem = _build(selection, launch, top, tree)
            if problem:
                raise UsageError(f"the benchmarks cannot be built at {ref} ({commit[:8]}): {problem}")
        yield BuiltCheckout(ref, commit, rows, "of that commit" if own_benchmarks else "of now", note)


@contextmanager
def launch_checkout(
    ref: str, what: Sequence[str], own_benchmarks: bool = False
) -> Generator[tuple[Launch, Launch], None, None]:
    """(processes of `ref`, processes of now), for `process_pairs`: there the user's Python is timed, too.

    Args, Raises: as `build_checkout`. Paths in `what` must be relative: they mean the same in both.
    """
    if absolute := next((text for text in what if Path(text).is_absolute()), None):
        raise UsageError(f"the path {absolute!r} is that of now", "a path relative to the working folder")
    with _checkout(ref) as (top, commit, tree):
        if not own_benchmarks:
            _bring(what, top, tree)
        _find_usual_packages(top)
        yield _launch(ref, commit, top, tree), Launch(Version("now"), folder=Path.cwd())


def label_commit(ref: str, commit: str) -> str:
    """main (4dc77b6f); a hash is not said twice."""
    return commit[:8] if commit.startswith(ref) else f"{ref} ({commit[:8]})"


def top_of_here() -> Path:
    """Returns the top of the working folder's repository. Raises `UsageError` if there is no repository."""
    return Path(git(Path.cwd(), "rev-parse", "--show-toplevel"))


def commit_of(top: Path, ref: str) -> str:
    try:
        # A name can begin with a dash. It is then a commit that does not exist, not an option.
        return git(top, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}")
    except UsageError:
        if git(top, "rev-parse", "--is-shallow-repository") == "true":
            problem = f"there is no commit {ref!r} in {top}, which is a shallow clone"
            raise UsageError(problem, "a commit that was fetched", "git fetch --unshallow") from None
        known = git(top, "for-each-ref", "--format=%(refname:short)").split()
        near = get_close_matches(ref, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "see `git branch -a` and `git log`"
        raise UsageError(f"there is no commit {ref!r} in {top}", "a branch, a tag or a commit", hint) from None


@contextmanager
def _checkout(ref: str) -> Generator[tuple[Path, str, Path], None, None]:
    """(top of the repository, commit, worktree), after those of ours whose process is gone were removed."""
    top = top_of_here()
    commit = commit_of(top, ref)
    _remove_leftovers(top)
    # The name contains the owner, so that the next process can remove a worktree that a crash left behind.
    tree = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve()
    try:
        git(top, "worktree", "add", "--quiet", "--detach", "--force", str(tree), commit)
        yield top, commit, tree
    finally:
        _remove(top, tree)


def _remove(top: Path, tree: Path) -> None:
    try:
        git(top, "worktree", "remove", "--force", str(tree))
    except UsageError:  # what is damaged, or locked, git does not remove
        shutil.rmtree(tree, ignore_errors=True)
        git(top, "worktree", "prune")


def _remove_leftovers(top: Path) -> None:
    """Worktrees of ours whose process is gone."""
    for line in git(top, "worktree", "list", "--porcelain").splitlines():
        path = Path(line.removeprefix("worktree "))
        if not line.startswith("worktree ") or not path.name.startswith(PREFIX):
            continue
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if not (pid.isdecimal() and psutil.pid_exists(int(pid))):
            _remove(top, path)


def git(folder: Path, *arguments: str) -> str:
    # In a git hook, variables name its index. git would write the other commit into that index.
    done = run_command(["git", "-C", str(folder), *arguments], environ=git_variables())
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()] or ["it gave no reason"]
        # First the problem, then the remedy, such as the command that trusts another user's folder.
        at = next((i for i, line in enumerate(lines) if line.startswith("fatal: ")), len(lines) - 1)
        problem = f"git {arguments[0]} failed in {folder}: {lines[at]}"
        raise UsageError(problem, "a git repository", " ".join(lines[at + 1 :]))
    return done.stdout.strip()


# ---- in the worktree --------------------------------------------------------------------------------------------


def _move(path: Path, top: Path, tree: Path) -> Path:
    """The same place in the worktree; `path` itself where it is outside of the repository."""
    inside = path.resolve()
    return tree / inside.relative_to(top) if inside.is_relative_to(top) else path


def _bring(what: Sequence[str], top: Path, tree: Path) -> list[str]:
    """Copies the benchmark files of now into the worktree; the names of those that differ there."""
    if ":" in what[0] and not Path(what[0]).exists():  # a function by name: no file of benchmarks is meant
        return []
    changed: list[str] = []
    for path in (file for text in what if Path(text).exists() for file in files(Path(text))):
        copy = _move(path, top, tree)
        if copy != path:
            if copy.exists() and copy.read_bytes() != path.read_bytes():
                changed.append(path.name)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    return changed


def _build(selection: Selection, launch: Launch, top: Path, tree: Path) -> tuple[dict[CaseId, Measurement], str]:
    """The rows of the cases that are found there, and an empty text. Without any case: none, and the reason."""
    # Relative paths stay valid in the moved working folder. Absolute ones are moved.
    what = tuple(str(_move(Path(text), top, tree)) if Path(text).is_absolute() else text for text in selection.what)
    # Nothing is stored there, but a row has its program only if it can be stored.
    options = {**selection.options, "stages": "build", "store": str(tree / ".benchmarks")}
    with closing(Partner(launch, replace(selection, what=what, options=options))) as partner:
        listing = partner.listing()
        rows = {case: _build_case(partner, case, listing) for case in listing.cases}
    return rows, "" if rows else listing.why_missing(launch.version.label).message


def _build_case(partner: Partner, case: CaseId, listing: Listing) -> Measurement:
    number, limit_s = listing.cases[case]
    try:
        return with_program(partner.ask(build_case, (partner.source, number), limit_s))
    except Failed as failed:
        return RemoteRow().row(case, listing.environment or capture(with_jax=False), DEFAULTS, "", failed.failure)


def _launch(ref: str, commit: str, top: Path, tree: Path) -> Launch:
    """Its processes import from the worktree what can be imported from the repository here."""
    version = Version(label_commit(ref, commit), commit, False)
    own = [path for path in sys.path if _is_own(Path(path), top)]
    moved = [_move(Path(path), top, tree) for path in own]
    first = [str(path) for path in dict.fromkeys([*moved, *(tree / name for name in USUAL)]) if path.is_dir()]
    # Files that the other commit lacks must not come from this one, which PYTHONPATH or an editable installation may
    # point to.
    rest = [path for path in sys.path if path not in own]
    return Launch(version, folder=_move(Path.cwd(), top, tree), paths=(*first, *rest), top=top)


def _is_own(path: Path, top: Path) -> bool:
    """Does it hold modules of the repository? Folders that git ignores, such as an environment, belong only to the
    current version.
    """
    inside = path.resolve()
    if not inside.is_relative_to(top) or "site-packages" in path.parts:
        return False
    return bool(git(top, "ls-files", "--cached", "--others", "--exclude-standard", "--", str(inside)))


def _find_usual_packages(top: Path) -> None:
    """Lets this process import a package of the repository that is not installed, as the other commit's can be. Last:
    what is installed is imported as before."""
    usual = (str(top / name) for name in USUAL)
    sys.path.extend(path for path in usual if path not in sys.path and Path(path).is_dir())
