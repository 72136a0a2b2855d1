"""Judges a run time in its own test: the stored program of the reference runs side by side with the one of now.

Times of two sessions tell no change below a factor of 2.5. Two programs that take turns in one process tell 15 % and
more in about half a second: a round has a sample of each, so the machine's pace divides out. What's left is the luck of
two executables, which recordings put below 12 % (`MARGIN`). Smaller changes need fresh processes, which take longer:
`--ptjb-fail-slower` (`fail_slower.py`).

The two exported programs run, never the user's function. Where the programs are equal nothing needs to run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import jax
import numpy as np

from benchax import api, units
from benchax.errors import NotMeasured, reason_of
from benchax.measuring import paired
from benchax.measuring.paired import PairedRequest, Side
from benchax.model import Measurement
from benchax.stats.intervals import median_interval
from benchax.stats.verdicts import Verdict
from benchax.store import baselines
from benchax.store.database import DatabaseStore
from benchax.store.schema import case_key
from pytest_jax_bench.baseline import MetricVerdict, Row, has

BUILD_LIMIT_S = 1.0
"""By the stored times, which a busy machine makes long: programs that take longer to build aren't judged."""
CALL_LIMIT_S = 0.04
"""Programs that take longer aren't judged."""
LEAST_ROUNDS = 8
MARGIN = 0.15
"""A change counts when the interval of the ratio lies beyond this share."""
LEVEL = 0.98
_DIRECTIONS: tuple[tuple[int, Verdict], ...] = ((1, "slower"), (-1, "faster"))
SAME = MetricVerdict("same", "the program is the same")


def judge(old: Row, new: Measurement, leaves: Sequence[Any] | None, stored: MetricVerdict) -> MetricVerdict:
    """Judges the run time by the reference's program and the one of `new`, if stored times don't decide.

    The same program is neither slower nor faster, because a busy machine makes stored times differ by any factor.

    Args:
        old: the reference.
        leaves: the arrays that both programs are given; None where they stayed in another process.
        stored: the verdict of the stored times.
    """
    try:
        store, reference = find_reference(old, new)
        if new.program is not None and reference.program.sha256 == new.program.sha256:
            return SAME
        if stored.verdict != "unclear":
            return stored
        judged = _run_both(store, old, reference, new, leaves)
    except Exception as error:  # whatever it is: the row is there, and the test has done its work
        if stored.verdict != "unclear":
            return stored
        judged = MetricVerdict("unclear", f"not judged side by side, because {reason_of(error)}")
    return judged if judged.verdict != "unclear" else replace(judged, why=f"{stored.why}; {judged.why}")


def _run_both(
    store: DatabaseStore, old: Row, reference: Measurement, new: Measurement, leaves: Sequence[Any] | None
) -> MetricVerdict:
    """Runs both programs for about half a second. Raises `NotMeasured` if they would take longer."""
    if leaves is None:
        raise NotMeasured("its inputs are in another process")
    build_s = (old["compile_ms"] + (new.stages.build_s or 0.0) * 1e3) / 1e3
    if build_s > BUILD_LIMIT_S:
        raise NotMeasured(f"building both programs takes {units.seconds(build_s)}")
    programs = [baselines.program(store, m) for m in (reference, new)]
    call_s = new.headline.summary.median_s if new.headline else 0.0
    if call_s > CALL_LIMIT_S:
        raise NotMeasured(f"half a second isn't enough for calls of {units.seconds(call_s)}")
    needed = math.ceil(LEAST_ROUNDS * 2 * call_s / (paired.BLOCK_NS / 1e9))
    return _compare(programs, leaves, patience=2 if call_s < 1e-3 else needed)


def find_reference(old: Row, new: Measurement) -> tuple[DatabaseStore, Any]:
    """The store, and the measurement of the reference, which has a program, as `new` has.

    Raises:
        NotMeasured: one of them has none.
    """
    if not old["session"]:
        raise NotMeasured("the reference was kept by pytest-jax-bench, without its program")
    if not has(old, "jit"):
        raise NotMeasured("the run time of the reference was not measured")
    if new.program is None:
        raise NotMeasured(f"it has {_no_program(new)}")
    store = api.opened(new.options.store)
    reference = _find_measurement(store, old, new)
    if reference.program is None:
        raise NotMeasured(f"the reference has {_no_program(reference)}")
    return store, reference


def _find_measurement(store: DatabaseStore, old: Row, new: Measurement) -> Measurement:
    """The measurement of a jitted function that the row `old` was made of."""
    rows = store.query(case=new.case.name, run=old["session"])
    # A session may measure the same thing twice; the row bears the time at which the first of its parts began.
    mine = [m for m in rows if case_key(m.case) == case_key(new.case) and m.started_at >= old["created"]]
    if not mine:
        raise NotMeasured(f"the program of the reference is not in {store.where}")
    return mine[0]


def _no_program(m: Measurement) -> str:
    return f"no program that could run again: {m.why_absent('program') or 'it was stored by a benchax that kept none'}"


def _compare(programs: Sequence[Any], leaves: Sequence[Any], patience: int) -> MetricVerdict:
    sides = tuple(
        Side(label, program=content, leaves=tuple(leaves)) for label, content in zip("ab", programs, strict=True)
    )
    request = PairedRequest(sides, blocks=1, patience=patience, compares_outputs=False)
    answer = paired.take_blocks(request, lambda *_, **__: None)
    if answer.failure:
        raise NotMeasured(answer.failure.message)
    if answer.wall_ns is None or answer.cpu_ns is None:
        raise NotMeasured("both are one program")
    wall, processor = (
        np.log(np.maximum(ns, 1) / np.maximum(ns[..., :1], 1))[..., 1].ravel().tolist()
        for ns in (answer.wall_ns, answer.cpu_ns)
    )
    # What a host spends on a call says nothing of a device.
    return decide(wall, processor if jax.default_backend() == "cpu" else None)


def decide(wall: Sequence[float], processor: Sequence[float] | None = None) -> MetricVerdict:
    """The verdict on logarithms of new over old, in the order in which they were taken.

    Args:
        processor: of the processor time of all threads. On a busy machine, where wall times wait for a core, it shows
            a change that the median of the wall times must agree with.
    """
    intervals = [median_interval(ratios, LEVEL) for ratios in (wall, processor) if ratios]
    change = units.change(math.exp(median(wall)))
    why = f"side by side {change}, {len(wall)} pairs"
    for interval in intervals:
        for sign, verdict in _DIRECTIONS:
            # A neighbour that comes or goes half way is no change of the program: both halves must agree.
            halves = [median(half) for half in (wall[: len(wall) // 2], wall[len(wall) // 2 :])]
            if interval and min(sign * each for each in (*interval, *halves)) > math.log1p(MARGIN):
                return MetricVerdict(verdict, why, change)
    return MetricVerdict("unclear", f"{why}, which isn't {MARGIN:.0%} for sure (--ptjb-fail-slower tells more)")
