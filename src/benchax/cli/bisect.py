"""`benchax bisect`: finds the commit, or the version of JAX, that made a case slower."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from benchax.checkouts.launch import Selection
from benchax.cli.console import line, note
from benchax.cli.options import Given, Params, Pattern, takes_options
from benchax.comparing.sequential import Effort
from benchax.errors import UsageError
from benchax.progress import ProgressEvent, show_progress
from benchax.stats.verdicts import Verdict
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.paired_runs.bisect import Bisected

FOUND, SEVERAL_LEFT = 0, 3
"""These are exit codes."""


@takes_options(max_time_s="Start no process of a comparison after this time: 2min.")
def bisect(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GOOD BAD] [PATH... | MODULE:FUNCTION [INPUT...]]",
            help="Two commits: GOOD is fast enough, BAD is slower. Then what to measure, as for `benchax run`. With "
            "--jax, give no commits.",
        ),
    ] = None,
    *,
    pattern: Pattern = "",
    params: Params = None,
    jax: Annotated[
        str | None,
        typer.Option(metavar="VERSIONS", help="Search between two versions of JAX, or in a list: 0.9.0,0.10.2."),
    ] = None,
    given: Given,
) -> None:
    """Find the commit, or the version of JAX, that made cases slower."""
    from benchax.paired_runs import bisect

    max_time_s = given["max_time_s"]
    if jax is not None:
        name, row, words = "jax {}".format, _versions(jax), what
    elif what is None or len(what) < 2:
        raise UsageError(f"bisect {' '.join(what or [])!r} is not enough", "GOOD BAD, two commits, or --jax A,B")
    else:
        name, row, words = bisect.describe_commit, bisect.list_commits(what[0], what[1]), what[2:]
        note(f"{plural(len(row) - 1, 'commit')} from {what[0]} to {what[1]}")
    selection = Selection(tuple(words or ["."]), pattern, tuple(params or []))
    with show_progress(True) as report, ExitStack() as stack:
        if jax is not None:
            judge = bisect.make_jax_judge(row[0], selection, max_time_s, report)
        else:
            effort = Effort(max_time_s=max_time_s)
            judge = stack.enter_context(bisect.make_commit_judge(row[0], selection, effort, report))

        def judge_and_report(one: str) -> Verdict:
            verdict = judge(one)
            report(ProgressEvent(f"{verdict:8} {name(one)}", is_lasting=True))
            return verdict

        found = bisect.bisect(row, judge_and_report)
    raise typer.Exit(_show(found, name))


def _versions(text: str) -> list[str]:
    from benchax.paired_runs import bisect

    listed = [version.strip() for version in text.split(",")]
    if len(listed) < 2 or len(set(listed)) < len(listed) or not all(listed):
        raise UsageError(f"--jax {text!r} cannot be searched", "two versions or more, all different: 0.9.0,0.10.2")
    return bisect.list_releases(*listed) if len(listed) == 2 else listed


def _show(found: Bisected, name: Callable[[str], str]) -> int:
    if found.first_bad is not None:
        line(f"{name(found.first_bad)} is the first that is slower")
        return FOUND
    line(f"one of these {len(found.left)} is the first that is slower; these gave no clear verdict:")
    for one in found.left:
        line(f"  {name(one)}")
    return SEVERAL_LEFT
