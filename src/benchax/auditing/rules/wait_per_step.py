"""Finds lines that wait for the device in each step, so that host and device work in turns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.rule import Gain, rule
from benchax.auditing.rules.unawaited_timing import timeit_calls
from benchax.auditing.syntax import tree_of, where_of
from benchax.errors import NotMeasured
from benchax.results.audit import Finding, Where
from benchax.units import count, percent, seconds

OFTEN = 20
SHARE = 0.05
"""The share of a step that could be saved at most, for a finding."""
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
        is_dear = line["count"] >= OFTEN and line["gain_s"] >= SHARE * line["stepped_s"]
        if is_dear and not _is_timed(where_of(line["where"])):
            yield _finding(line)
    if not host["sees_methods"]:
        raise NotMeasured("waits by methods of arrays cannot be seen in this JAX")


def _is_timed(where: Where | None) -> bool:
    """Does it stand in what `timeit` calls, which has to wait?"""
    tree = tree_of(where[0]) if where else None
    if where is None or tree is None:
        return False
    return any(interval.first <= where[1] <= interval.last for interval in timeit_calls(tree))


def _finding(line: Mapping[str, Any]) -> Finding:
    steps = line["count"] - 1
    step_s, saved_s = line["stepped_s"] / steps, min(line["gain_s"], line["stepped_s"]) / steps
    is_read = line["by"] == ".item" or line["by"].startswith("np.")
    beside = f"behind them, until the next wait, the host worked for {seconds(line['between_s'])}"
    return wait_per_step.finding(
        f"waits by {line['by']} in each step",
        [
            f"{count(line['count'])} waits of {seconds(line['waited_s'])} together, in the whole run",
            f"{beside}, in which the device had nothing to do",
        ],
        READS if is_read else WAITS,
        where=where_of(line["where"]),
        gain=Gain(
            f"estimated: at most {seconds(saved_s)} of {seconds(step_s)} a step ({percent(saved_s / step_s)}), where "
            "the host's work and the device's can run side by side",
            saved_s,
        ),
    )
