"""Finds the first bad one in a row that begins well and ends badly, by a judge that may not be able to tell.

Where the middle is unclear its neighbours are asked; where they are unclear too the search ends, and says which range
is left. Nothing here knows what is judged.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchax.checkouts import worktrees
from benchax.checkouts.launch import Selection, launch_jax, list_versions, version_key
from benchax.checkouts.worktrees import BuiltCheckout, build_checkout
from benchax.comparing.sequential import Effort
from benchax.environment import capture
from benchax.errors import BenchaxError, UsageError
from benchax.model import CaseId, Comparison, Measurement
from benchax.options import resolve
from benchax.paired_runs import session
from benchax.paired_runs.compare import StoredVersion, pair_with_rows
from benchax.paired_runs.process_pairs import compare_launches
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.stats.verdicts import Verdict

Judge = Callable[[str], Verdict]
"""The verdict on one of the row, compared with its first."""
NEIGHBOURS = 4
"""The number of commits to try instead of an unclear one. Each can take a minute."""


@dataclass(frozen=True)
class Bisected:
    """The result of a bisection: the remaining part of the row."""

    left: tuple[str, ...]
    """The first bad one is among these; the last of them is bad."""
    verdicts: dict[str, Verdict] = field(default_factory=dict[str, Verdict])
    """All that were asked for, in that order."""

    @property
    def first_bad(self) -> str | None:
        """None if several are left."""
        return self.left[0] if len(self.left) == 1 else None


def bisect(row: Sequence[str], judge: Judge) -> Bisected:
    """Asks the judge for about log2 n of the row, where it can tell.

    Args:
        row: without repetitions. The first is good, and is not asked for; the last is asked for first.
        judge: "slower" is bad, "same" and "faster" are good.

    Raises:
        UsageError: the last one is not slower, so that there is nothing to be found.
    """
    verdicts: dict[str, Verdict] = {}

    def asked(one: str) -> Verdict:
        if one not in verdicts:
            verdicts[one] = judge(one)
        return verdicts[one]

    good, bad = 0, len(row) - 1
    if bad < 1 or asked(row[bad]) != "slower":
        found = f": {verdicts[row[bad]]}" if verdicts else ""
        raise UsageError(
            f"{row[bad]} is not slower than {row[good]}{found}", "two versions; the second one must be slower"
        )
    while good + 1 < bad:
        # The nearest to the middle comes first, and of two equally near the earlier one.
        between, middle = range(good + 1, bad), (good + bad) // 2
        near = heapq.nsmallest(NEIGHBOURS + 1, between, key=lambda i: (abs(i - middle), i))
        clear = next((i for i in near if asked(row[i]) != "unclear"), None)
        if clear is None:
            break
        good, bad = (good, clear) if asked(row[clear]) == "slower" else (clear, bad)
    return Bisected(tuple(row[good + 1 : bad + 1]), verdicts)


# ---- judges ----------------------------------------------------------------------------------------------------------
#
# Judges for `bisect`. Commits are judged by their programs, side by side in one process; versions of JAX by process
# pairs.
#
# A commit needs no measurement if another judged commit has the same programs: the same StableHLO under the same JAX is
# the same work. Changes of a commit in Python alone are not seen.


def list_commits(good: str, bad: str) -> list[str]:
    """Full hashes from `good` to `bad`, along the first parents.

    Raises:
        UsageError: no git repository, no such commit, or `good` is not among the ancestors of `bad`.
    """
    top = worktrees.top_of_here()
    first, last = worktrees.commit_of(top, good), worktrees.commit_of(top, bad)
    between = worktrees.git(top, "rev-list", "--first-parent", "--reverse", f"{first}..{last}").split()
    base = worktrees.git(top, "rev-parse", f"{between[0]}^") if between else ""
    if base != first:
        hint = f"git merge-base {good} {bad} finds where they part"
        raise UsageError(f"{bad} does not come after {good} along first parents", "GOOD BAD, the older one first", hint)
    return [first, *between]


def describe_commit(commit: str) -> str:
    """3f2a1b0 "its subject" """
    return worktrees.git(Path.cwd(), "show", "--no-patch", '--format=%h "%s"', commit)


def list_releases(first: str, last: str) -> list[str]:
    """The releases of JAX from `first` to `last`.

    Raises:
        UsageError: they are not two releases, the older one first.
        NotAvailable: they cannot be listed.
    """
    listed = list_versions()
    for version in (first, last):
        if version not in listed:
            raise UsageError(f"there is no release {version!r} of JAX", "such as " + ", ".join(listed[-3:]))
    if version_key(first) >= version_key(last):
        raise UsageError(f"jax {last} does not come after jax {first}", "A,B, the older one first")
    return [version for version in listed if version_key(first) <= version_key(version) <= version_key(last)]


@contextmanager
def make_commit_judge(
    good: str, selection: Selection, effort: Effort, report: Listener = quiet
) -> Generator[Judge, None, None]:
    """A judge that compares commits with `good`. A commit that cannot be built is unclear, and `report` gets the
    reason.
    """
    options, known = resolve(), dict[tuple[str, ...], Verdict]()
    with build_checkout(good, selection) as baseline:
        cases = _with_programs(baseline)
        old = StoredVersion(baseline.commit[:8], cases)
        known[_digest_programs(baseline, cases)] = "same"

        def judge(commit: str) -> Verdict:
            try:
                with build_checkout(commit, selection) as candidate:
                    key = _digest_programs(candidate, cases)
                    if not any(key):
                        raise UsageError(f"no case of {good} has a program at {commit[:8]}")
                    if key not in known:
                        new = StoredVersion(candidate.commit[:8], candidate.rows)
                        paired_runs, _ = pair_with_rows(old, new, capture(), options)
                        found = session.compare_runs(paired_runs, effort, report)
                        known[key] = verdict_of([c for each in found for c in each])
                    return known[key]
            except UsageError as error:
                report(ProgressEvent(error.problem, is_lasting=True))
                return "unclear"

        yield judge


def _with_programs(baseline: BuiltCheckout) -> dict[CaseId, Measurement]:
    """Raises `UsageError` if no case has a program."""
    found = {case: row for case, row in baseline.rows.items() if row.program is not None}
    if not found:
        reasons = [row.why_absent("program") or "it failed" for row in baseline.rows.values()]
        why = f", because {reasons[0]}" if reasons else ""
        raise UsageError(f"no case of {baseline.label} has a program that could run again{why}")
    return found


def _digest_programs(built: BuiltCheckout, cases: Iterable[CaseId]) -> tuple[str, ...]:
    """The programs of these cases in that build, as digests; an empty text if a case has no program."""
    rows = [built.rows.get(case) for case in cases]
    return tuple(row.program.sha256 if row is not None and row.program else "" for row in rows)


def make_jax_judge(first: str, selection: Selection, max_time_s: float | None, report: Listener = quiet) -> Judge:
    """A judge that compares versions of JAX with `first`. One that cannot be installed is unclear."""

    def judge(version: str) -> Verdict:
        try:
            sides = launch_jax(first), launch_jax(version)
            found = compare_launches(sides, selection, max_time_s, report)
        except BenchaxError as error:
            report(ProgressEvent(error.problem, is_lasting=True))
            return "unclear"
        return verdict_of(found)

    return judge


def verdict_of(found: Sequence[Comparison]) -> Verdict:
    """Returns one word for the run times of several cases: slower if one is slower. Else it is unclear if one is
    unclear, or if there are no cases.
    """
    verdicts: list[Verdict] = [c.verdict for c in found if c.metric == "run"]
    if "slower" in verdicts or "unclear" in verdicts or not verdicts:
        return "slower" if "slower" in verdicts else "unclear"
    return "same"
