"""Finds lines that wait for the device in each step, so that host and device work in turns."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.rules.unawaited_timing import Interval, intervals, timeit_calls
from benchax.auditing.syntax import loops_around, tree_of, where_of
from benchax.auditing.wait_notes import is_dear
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.units import count, percent, seconds

OFTEN = 20
LEAST_SHARE_OF_RUN = 0.002
"""What a run could save at most; of less, as of forty results that are read when all is done, nothing is said."""
READS = (
    "Keep what it reads in a list, as arrays, and read it every hundredth step, or all at once at the end, with "
    "jax.device_get."
)
WAITS = (
    "Leave it out: the next call waits by itself for what it needs. Wait once, behind the loop, and to read a clock."
)


@rule("wait-per-step", "does the host work on while the device computes?", "warning", of="program")
def wait_per_step(e: ProgramEvidence) -> Iterable[Finding]:
    host = e.facts.get("host")
    if host is None:
        raise NotMeasured("what the program waits for was not noted")
    for line in sorted(host["waits"], key=lambda line: -line["gain_s"]):
        where = where_of(line["where"])
        tree = tree_of(where[0]) if where else None
        is_felt = line["gain_s"] >= LEAST_SHARE_OF_RUN * (e.watch.wall_s or 0.0)
        if (
            line["count"] >= OFTEN
            and is_felt
            and is_dear(line)
            and not _is_in(where, timeit_calls(tree) if tree else ())
        ):
            yield _finding(line, is_timed=_is_in(where, _of_steps(tree, where)))
    if not host["sees_methods"]:
        raise NotMeasured("waits by methods of arrays cannot be seen in this JAX")


def _of_steps(tree: ast.AST | None, where: Where | None) -> Iterator[Interval]:
    """Intervals within the loop around a wait: one that holds all of the loop needs a single wait, behind it."""
    if tree is not None and where is not None:
        loops = [loop for loop in loops_around(tree, where[1]) if isinstance(loop, ast.For | ast.While)]
        loop = max(loops, key=lambda one: one.lineno, default=None)
        yield from (each for each in intervals(tree) if loop is None or each.first > loop.lineno)


def _is_in(where: Where | None, timed: Iterable[Interval]) -> bool:
    return where is not None and any(interval.first <= where[1] <= interval.last for interval in timed)


def _finding(line: Mapping[str, Any], *, is_timed: bool) -> Finding:
    step_s, saved_s = (s / line["steps"] for s in (line["stepped_s"], min(line["gain_s"], line["stepped_s"])))
    is_read = line["by"] == ".item" or line["by"].startswith("np.")
    beside = f"behind them, until the next wait, the host worked for {seconds(line['between_s'])}"
    return wait_per_step.finding(
        f"waits by {line['by']} in each step",
        [
            f"{count(line['count'])} waits of {seconds(line['waited_s'])} together, in the whole run",
            f"{beside}, in which the device had nothing to do",
            *(["it stands between two readings of a clock, which need it: time fewer steps"] if is_timed else []),
        ],
        READS if is_read else WAITS,
        where=where_of(line["where"]),
        gain=Gain(
            f"estimated: at most {seconds(saved_s)} of {seconds(step_s)} a step ({percent(saved_s / step_s)}), where "
            "the host's work and the device's can run side by side",
            saved_s,
        ),
        severity="info" if is_timed else None,
    )
