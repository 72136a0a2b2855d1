"""Judges a run time in its own test: the stored program of the reference runs side by side with the one of now.

Times of two sessions tell no change below a factor of 2.5. Two programs that take turns in one process tell 15 % and
more in half a second: each call of one follows a call of the other, so the machine's pace divides out. What's left is
the luck of two executables, which recordings put below 12 % (`MARGIN`). Smaller changes need fresh processes, which
take longer: `--ptjb-fail-slower` (`fail_slower.py`).

The two exported programs run, never the user's function. Where the programs are equal nothing needs to run.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from statistics import median
from time import perf_counter, process_time
from typing import Any

import jax

from benchax import api, units
from benchax.errors import BenchaxError, NotMeasured
from benchax.machine.noise import paused_gc
from benchax.measuring.exported import ImportedProgram
from benchax.measuring.jax_settings import keep_programs
from benchax.model import Measurement
from benchax.stats.intervals import median_interval
from benchax.stats.verdicts import Verdict
from benchax.store import baselines
from benchax.store.database import DatabaseStore
from benchax.store.schema import case_key
from pytest_jax_bench.baseline import MetricVerdict, Row, has

LIMIT_S = 0.5
"""For building both programs and running them alternately."""
BUILD_LIMIT_S = 1.0
"""By the stored times, which a busy machine makes long: programs that take longer to build aren't judged."""
LEAST_S = 0.2
"""For running them, also where building took most of the limit."""
MARGIN = 0.15
"""A change counts when the interval of the ratio lies beyond this share."""
LEVEL = 0.98
LEAST_PAIRS, MOST_PAIRS = 8, 200
SAMPLE_S = 200e-6
_DIRECTIONS: tuple[tuple[int, Verdict], ...] = ((1, "slower"), (-1, "faster"))
SAME_PROGRAM = "the program is the same"


def judge(old: Row, new: Measurement, leaves: Sequence[Any] | None) -> MetricVerdict:
    """Judges the run time by the reference's program and the one of `new`, in about half a second.

    Args:
        old: the reference.
        leaves: the arrays that both programs are given; None where they stayed in another process.
    """
    try:
        store, reference = find_reference(old, new)
        if new.program is not None and reference.program.sha256 == new.program.sha256:
            return MetricVerdict("same", SAME_PROGRAM)
        if leaves is None:
            raise NotMeasured("its inputs are in another process")
        build_s = (old["compile_ms"] + (new.stages.build_s or 0.0) * 1e3) / 1e3
        if build_s > BUILD_LIMIT_S:
            raise NotMeasured(f"building both programs takes {units.seconds(build_s)}")
        programs = [baselines.program(store, m) for m in (reference, new)]
        return _compare(programs, leaves, LIMIT_S)
    except Exception as error:  # whatever it is: the row is there, and the test has done its work
        why = error.problem if isinstance(error, BenchaxError) else f"{type(error).__name__}: {error}"
        return MetricVerdict("unclear", f"not judged side by side, because {' '.join(why.split())}")


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


def _compare(programs: Sequence[Any], leaves: Sequence[Any], limit_s: float) -> MetricVerdict:
    until = perf_counter() + limit_s
    with paused_gc(), keep_programs():
        calls = [_build(content, leaves) for content in programs]
        for call in calls * 2:  # the second one knows the caches
            taken_s, _ = _time(call, 1)
        until = max(until, perf_counter() + LEAST_S)
        count = max(1, int(SAMPLE_S / max(taken_s, 1e-9)))
        if 2 * LEAST_PAIRS * taken_s > limit_s:
            raise NotMeasured(f"half a second isn't enough to call each {LEAST_PAIRS} times")
        ratios, rng = list[tuple[float, ...]](), random.Random(0)
        while len(ratios) < LEAST_PAIRS or (perf_counter() < until and len(ratios) < MOST_PAIRS):
            order = [0, 1] if rng.random() < 0.5 else [1, 0]
            times = {i: _time(calls[i], count) for i in order}
            ratios.append(tuple(math.log(new / old) for old, new in zip(times[0], times[1], strict=True)))
    wall, processor = zip(*ratios, strict=True)
    # What a host spends on a call says nothing of a device.
    return decide(wall, processor if jax.default_backend() == "cpu" else None)


def _build(content: Any, leaves: Sequence[Any]) -> Any:
    program: Any = ImportedProgram(content).program().call
    compiled = program.lower(*leaves).compile()
    if any(info.donated for info in jax.tree.leaves(compiled.args_info, is_leaf=lambda x: hasattr(x, "donated"))):
        raise NotMeasured("it donates its inputs")
    return lambda: compiled(*leaves)


def _time(call: Any, count: int) -> tuple[float, float]:
    """Wall and processor seconds of a call."""
    start, start_processor = perf_counter(), process_time()
    for _ in range(count):
        outputs = call()
    jax.block_until_ready(outputs)
    wall, processor = perf_counter() - start, process_time() - start_processor
    return wall / count, max(processor, 1e-9) / count


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
