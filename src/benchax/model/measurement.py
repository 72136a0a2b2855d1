"""One row: the readings of a case, and the reason for each number that is missing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from benchax.errors import NotMeasured, UsageError, one_of
from benchax.model.identity import CaseId, Environment, Options, Program, WorkPerCall
from benchax.model.readings import TIMERS, Cost, Devices, EarlierRuns, Memory, Noise, Numerics, Ranks, Samples, Stages
from benchax.renderers import SelfRendering
from benchax.stats.summary import Summary, summarize_run

MARGINS = {"in_graph": 0.05, "loop": 0.05, "device": 0.05, "wall": 0.10, "pipelined": 0.10}
"""Timer → how far a later run may read outside of two processes that agree, as a share (docs/about/decisions.md). Whole
calls scatter more than what runs inside a program: they wait for threads, and get new memory."""

Severity = Literal["info", "warning", "error"]
FailureKind = Literal[
    "error", "out_of_memory", "wrong_output", "wrong_shape", "crashed", "timeout", "not_run", "interrupted", "node_lost"
]


@dataclass(frozen=True)
class Remark:
    """A sentence that readers of the numbers need. `code` is stable, so you can search for it."""

    code: str
    severity: Severity
    message: str


@dataclass(frozen=True)
class Absent:
    """A missing number and its reason: "not measured, because {why}". `what` is a path such as stages.trace_s."""

    what: str
    why: str
    is_by_choice: bool = False
    """It wasn't asked for, or another number answers the same question."""


def find_why(absent: tuple[Absent, ...], what: str) -> str | None:
    """Returns the reason why `what`, or its group, is missing; None without one."""
    return next((a.why for a in absent if what == a.what or what.startswith(f"{a.what}.")), None)


@dataclass(frozen=True)
class Failure:
    """Why a case has no numbers."""

    kind: FailureKind
    stage: str
    message: str
    advice: str = ""
    traceback: str = ""


@dataclass(frozen=True)
class Rate:
    """How much of something is done in a second."""

    what: str
    per_s: float
    """Computed from the median time."""
    low_per_s: float | None
    """The ends of its 95 % interval. The longer time gives the lower rate."""
    high_per_s: float | None
    timer: str


@dataclass(frozen=True)
class Measurement(SelfRendering):
    """One case, one environment, one run: one row. `print(m)` and, in a notebook, `m` show it; `repr(m)` is one line.

    Example:
        >>> m = benchax.bench(abs, "f32[8]", stages="build", store="off")
        >>> m.case.name, m.signature, m.stages.compile_s > 0
        ('abs', 'f32[8]', True)
        >>> m.why_absent("samples.wall")
        "only stages='build' was asked for"
    """

    case: CaseId
    environment: Environment
    options: Options
    run_id: str
    started_at: str
    """UTC, ISO 8601 with microseconds."""
    signature: str = ""
    """The inputs as specs: f32[1024,128], key, axis=0."""
    failure: Failure | None = None
    """Kind, stage, message, advice, and traceback, if there are no numbers."""
    stages: Stages = Stages()
    """The one-time costs of a call: transfer_in, trace_s, lower_s, compile_s, first_run_s, dispatch_s, call_floor (of
    calls below 1 ms), transfer_out. The fields cache and cold say which parts were compiled already."""
    samples: tuple[Samples, ...] = ()
    """One for each timer and process, with every reading, which of them were disturbed, and why sampling stopped."""
    memory: Memory = Memory()
    """The compiler's plan, and the observed rise of the compiled and the eager call, in bytes."""
    cost: Cost | None = None
    """XLA's count of operations; FFTs of N points as 5 N log2 N, of real numbers half of that."""
    numerics: Numerics | None = None
    """How far the result is from the reference."""
    noise: Noise = Noise()
    """The machine's load by other processes."""
    earlier_runs: EarlierRuns = EarlierRuns()
    """Earlier runs of the same program, which intervals take into account."""
    program: Program | None = None
    """The program that `compare_stored` can run again; None if it isn't kept."""
    work: WorkPerCall = WorkPerCall()
    """The declared work of one call (`amounts`), and the bandwidth of this machine (`peak_bytes_per_s`)."""
    devices: Devices | None = None
    """None if the program runs on one device."""
    ranks: Ranks | None = None
    """None for a program of one process."""
    remarks: tuple[Remark, ...] = ()
    """Notes that a reader must know, each with a stable `code`."""
    not_measured: tuple[Absent, ...] = ()
    """The reason for each missing number."""

    @property
    def status(self) -> Literal["ok", "failed"]:
        return "failed" if self.failure else "ok"

    @property
    def headline(self) -> Samples | None:
        """The samples of the first timer, in the first process."""
        return self.samples[0] if self.samples else None

    def samples_of(self, timer: str) -> Samples | None:
        """The samples by `timer` of the first process that has some."""
        return next((s for s in self.samples if s.timer == timer), None)

    def series_of(self, timer: str) -> tuple[Samples, ...]:
        """The samples by `timer`, one for each process that has some."""
        found: dict[int, Samples] = {}
        for samples in self.samples:
            if samples.timer == timer:
                found.setdefault(samples.process, samples)
        return tuple(found.values())

    @property
    def median_s(self) -> float:
        """The median of the headline: seconds per call. Raises `NotMeasured` as `summary` does."""
        return self.summary().median_s

    @property
    def interval_s(self) -> tuple[float, float]:
        """The ends of the headline's 95 % interval, in seconds per call.

        Raises:
            NotMeasured: nothing was timed, or there are too few readings for an interval.
        """
        s = self.summary()
        if s.low_s is None or s.high_s is None:
            raise NotMeasured(f"there are too few readings for an interval: {s.n}")
        return s.low_s, s.high_s

    def summary(self, timer: str | None = None) -> Summary:
        """Summarises the seconds per call by `timer` (default: the headline) over all processes.

        Raises:
            NotMeasured: this row has no readings by that timer; the message is the reason.
            UsageError: no timer has that name.
        """
        found = self.find_summary(timer)
        if found is not None:
            return found
        measured = dict.fromkeys(samples.timer for samples in self.samples)
        refused = {a.what.removeprefix("samples.") for a in self.not_measured if a.what.startswith("samples.")}
        if timer is not None and timer not in {*TIMERS, *refused}:
            raise UsageError(f"unknown timer {timer!r}", one_of({*TIMERS, *measured}, timer))
        if self.failure:
            raise NotMeasured(f"{self.failure.kind.replace('_', ' ')} in {self.failure.stage}: {self.failure.message}")
        why = self.why_absent(f"samples.{timer}" if timer else "samples")
        has = f"a timer that this row has: {', '.join(measured)}" if measured else ""
        raise NotMeasured(why or f"nothing asked for the timer {timer or 'of a headline'}", has)

    def find_summary(self, timer: str | None = None) -> Summary | None:
        """As `summary`; None if there are no readings by that timer."""
        name = timer or (self.headline.timer if self.headline else "")
        series = self.series_of(name)
        if not series:
            return None
        if name not in self._summaries:
            groups = [samples.per_call_s for samples in series]
            earlier = self.earlier_runs.medians_s.get(name, ())
            pace_scatter = self.noise.pace_scatter or 0.0
            self._summaries[name] = summarize_run(groups, earlier, MARGINS.get(name, MARGINS["wall"]), pace_scatter)
        return self._summaries[name]

    @cached_property
    def _summaries(self) -> dict[str, Summary]:
        """Kept by timer, because they are needed many times."""
        return {}

    def rates(self, timer: str | None = None) -> tuple[Rate, ...]:
        """The amounts of `work` per second by `timer` (default: the headline). Empty if the time wasn't measured, or
        isn't above the timer's own cost."""
        headline = self.headline
        name = timer or (headline.timer if headline else "")
        summary = None if self.failure else self.find_summary(name)
        if summary is None or not summary.median_s > 0:
            return ()
        low_s, high_s = summary.low_s, summary.high_s
        return tuple(
            Rate(
                what,
                amount / summary.median_s,
                amount / high_s if high_s else None,
                amount / low_s if low_s and low_s > 0 else None,
                name,
            )
            for what, amount in self.work.amounts.items()
        )

    def why_absent(self, what: str) -> str | None:
        """Returns the reason why the number at path `what`, or its group, is missing."""
        return find_why(self.not_measured, what)

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)
