"""One row: the readings of a case, and the reason for each number that is missing. Two rows compared: `Comparison`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Literal

from benchax.errors import NotMeasured, UsageError, one_of
from benchax.grouping import group_by
from benchax.model.identity import CaseId, Environment, Program, WorkPerCall
from benchax.options import Options
from benchax.renderers import Displayed, SelfRendering
from benchax.stats.summary import Summary, summarize, summarize_run
from benchax.stats.verdicts import Verdict
from benchax.units import number

# ---- readings --------------------------------------------------------------------------------------------------------
#
# The readings of one case: stages, samples, memory, operations, distance from the reference, and noise.


Cache = Literal["off", "hit", "miss", "warm"]
Cold = Literal["process", "operations", "function"]
Stop = Literal["precise", "time", "count"]
Form = Literal["direct", "branch"]

TIMERS = ("in_graph", "wall", "pipelined", "loop", "device")
"""The names of all timers. `measuring.timers` has them."""
OTHER_PROCESSES = "samples.processes"
"""What a row lacks whose readings are of one process."""


@dataclass(frozen=True)
class Transfer:
    """Copies between host and device, several times over. `is_zero_copy`: no byte moved, the array is a view."""

    size_bytes: int
    elapsed_s: tuple[float, ...] = field(repr=False)
    is_zero_copy: bool

    @property
    def median_s(self) -> float:
        return median(self.elapsed_s)

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """None if nothing was copied: a bandwidth of a view is not a bandwidth."""
        return None if self.is_zero_copy or not self.median_s else self.size_bytes / self.median_s


@dataclass(frozen=True)
class CallFloor:
    """Calls of a program that does next to nothing, each followed by one of the measured program; all waited for.

    It has as many arguments and results as the measured one, and runs on the same thread.
    """

    elapsed_s: tuple[float, ...] = field(repr=False)
    """The seconds of each call that does next to nothing."""
    call_s: tuple[float, ...] = field(repr=False)
    """The seconds of each call of the measured program, taken alternately with the calls above."""

    @property
    def median_s(self) -> float:
        return median(self.elapsed_s)

    @property
    def median_call_s(self) -> float:
        return median(self.call_s)

    @property
    def share(self) -> float:
        """The floor's share of a call, at least: by the medians, or by the least readings where these say less."""
        return min(self.median_s / self.median_call_s, min(self.elapsed_s) / min(self.call_s))


@dataclass(frozen=True)
class Stages(SelfRendering):
    """The one-time costs of a call. Each is one reading, except transfers, `dispatch_s` (a median) and the floor."""

    transfer_in: Transfer | None = None
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    first_run_s: float | None = None
    dispatch_s: float | None = None
    """Time until the call returns, when everything is warm. Where XLA:CPU runs inline it contains the work."""
    call_floor: CallFloor | None = None
    """The cost of a call that does not depend on the program; only for calls below a millisecond."""
    transfer_out: Transfer | None = None
    cache: Cache | None = None
    """JAX's persistent cache during compile_s; "warm": nothing was compiled, it was there already."""
    cold: Cold | None = None
    """Says what was compiled for the first time: anything in this "process", some of the "operations" of this function,
    or just this "function". Only functions that were measured here count."""

    @property
    def transfer_in_s(self) -> float | None:
        return self.transfer_in.median_s if self.transfer_in and self.transfer_in.elapsed_s else None

    @property
    def transfer_out_s(self) -> float | None:
        return self.transfer_out.median_s if self.transfer_out and self.transfer_out.elapsed_s else None

    @property
    def call_floor_s(self) -> float | None:
        return self.call_floor.median_s if self.call_floor and self.call_floor.elapsed_s else None

    @property
    def build_s(self) -> float | None:
        """trace + lower + compile, when all that exist were measured."""
        parts = [self.lower_s, self.compile_s]
        return None if None in parts else sum(p for p in [self.trace_s, *parts] if p)

    @property
    def first_result_s(self) -> float | None:
        """From a Python function to its first result: `build_s` and the first run; the inputs are on the device."""
        build_s = self.build_s
        return None if build_s is None or self.first_run_s is None else build_s + self.first_run_s


@dataclass(frozen=True)
class Census:
    """Counts the work of one run of the function inside a timer's interval, and by itself. Equal counts prove that both
    do the same work.
    """

    form: Form
    """How the timer's program contains the function: directly, or as the branch of a conditional. XLA moves nothing out
    of such a branch."""
    operations: tuple[tuple[str, float, float], ...]
    """(operation, in the interval, by itself), the most expensive first. A count says how often one call executes the
    operation: bodies of loops count times their trip counts. Data movement counts elements; custom calls count calls.
    """


@dataclass(frozen=True)
class Samples:
    """Raw clock readings of one timer in one process."""

    timer: str
    iterations: int
    """Calls inside one sample."""
    elapsed_s: tuple[float, ...] = field(repr=False)
    """One reading per sample, for all its iterations, in the order taken; none is ever dropped."""
    disturbed: tuple[bool, ...] | None = field(default=None, repr=False)
    """Per sample: was the process preempted during it? None if the system does not report this."""
    resolution_s: float | None = None
    """Smallest step of the clock that was seen."""
    overhead_s: float | None = None
    """The timer's own share of each reading, measured together with it; None if it is not known."""
    clock_tier: str | None = None
    """Which clock inside compiled code was read: "prebuilt", "built" or "python"."""
    regime: str | None = None
    """The contents of the interval, if a timer has several regimes (loop: "thunks" or "single kernel")."""
    stop: Stop | None = None
    process: int = 0
    """Counted from 0, which is the process that measured everything else of the row."""
    answers: str = ""
    """The question that this timer's number answers, in a few words."""
    census: Census | None = None
    """The census of the timer's own program; None if the timer runs the function's own executable."""
    trials: tuple[int, ...] | None = None
    """How many of the readings belong to each trial of a grid's cell, in order; None elsewhere."""

    @property
    def per_call_s(self) -> tuple[float, ...]:
        """Net of the timer's own cost, where it is known."""
        overhead_s = self.overhead_s or 0.0
        return tuple((t - overhead_s) / self.iterations for t in self.elapsed_s)

    @cached_property
    def summary(self) -> Summary:
        """Summarises the seconds per call. Kept, since it is asked for many times over."""
        return summarize(self.per_call_s)

    @property
    def disturbed_count(self) -> int | None:
        return None if self.disturbed is None else sum(self.disturbed)


@dataclass(frozen=True)
class Memory:
    """Bytes: the compiler's plan, and what the process really took."""

    argument_bytes: int | None = None
    output_bytes: int | None = None
    temp_bytes: int | None = None
    alias_bytes: int | None = None
    """Outputs that reuse donated arguments."""
    code_bytes: int | None = None
    constant_bytes: int | None = None
    """Baked into the compiled program."""
    captured_bytes: int | None = None
    """Closed over by the Python function, before XLA folded anything."""
    predicted_peak_bytes: int | None = None
    """argument + output + temp - alias + constant, from the plan."""
    compiler_peak_bytes: int | None = None
    """JAX's own `peak_memory_in_bytes`. On CPU it leaves out the temporaries (jax 0.7 to 0.10)."""
    compiled_rise_bytes: int | None = None
    """Observed: how far the compiled call rose above what was there before it (outputs + temporaries)."""
    eager_rise_bytes: int | None = None
    """The same for the eager call: the most of its readings. Depends on how far Python ran ahead of the device."""
    eager_rise_low_bytes: int | None = None
    """The least of its readings, where they are more than 3 % apart."""
    method: str | None = None
    """How the two rises were observed."""
    devices: int = 1
    """The plan is for one device out of this many; the rises are for all of them."""

    @property
    def observed_peak_bytes(self) -> int | None:
        """Arguments + observed rise of the compiled call. None on several devices: who holds what is not known."""
        if self.compiled_rise_bytes is None or self.argument_bytes is None or self.devices > 1:
            return None
        return self.argument_bytes + self.compiled_rise_bytes


@dataclass(frozen=True)
class Cost:
    """Operations of one call by XLA's own estimate for the optimised program. None: XLA does not say."""

    flops: float | None = None
    transcendentals: float | None = None
    bytes_accessed: float | None = None
    has_loops: bool = False
    """The program has `while` loops, whose bodies XLA counts once, however often they run."""


@dataclass(frozen=True)
class Numerics:
    """How far the compiled outputs are from a reference. Over all leaves; `worst` names the worst one."""

    reference: Literal["eager", "float64", "baseline"]
    agrees: bool
    worst: str = ""
    max_abs: float | None = None
    """Largest absolute difference; None if a structure, shape or dtype differs already."""
    max_rel: float | None = None
    """Largest difference over the largest magnitude of the reference leaf."""
    max_ulp: float | None = None
    """Largest difference in units in the last place of the compiled dtype at the reference's value."""
    nonfinite: int = 0
    """Elements that are finite on one side only, or NaN on one side only."""
    tolerance: float | None = None
    """The bound on max_rel in force for the worst leaf. If rounding was measured, there is also a bound on the root
    mean square."""
    why: str = ""
    """The disagreement in a sentence; empty if it agrees."""


@dataclass(frozen=True)
class Noise:
    """The machine's other work while this row was measured. Shares are of all cores together, 0 to 1."""

    load_1m: float | None = None
    others_share: float | None = None
    """CPU time of other processes."""
    steal_share: float | None = None
    """CPU time that the hypervisor gave to other machines."""
    pace_scatter: float | None = None
    """Robust standard deviation of this machine's pace from moment to moment, as a share: from readings of a fixed
    piece of work in earlier runs. None if too few are known."""


@dataclass(frozen=True)
class EarlierRuns:
    """Readings of earlier runs of the same program on the same machine, with the same settings."""

    source: str = ""
    """Digest of the traced and lowered program; empty if it isn't known, and then there are no earlier runs."""
    medians_s: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """Timer → `median_s` of each earlier run, oldest first; at most the newest 30."""


# ---- parallel --------------------------------------------------------------------------------------------------------
#
# On how many devices and in how many processes a program ran, and what each of them took.


@dataclass(frozen=True)
class DeviceShare:
    """The activity of one device in one call, from a recording."""

    name: str
    """cpu:0, gpu:3"""
    busy_s: float
    """Some operation ran: the union of their intervals."""
    communication_s: float | None = None
    """Some collective was under way, waiting for the others included; None: not known."""
    exposed_s: float | None = None
    """The part of that in which no other operation of the device was under way; None: not known."""


@dataclass(frozen=True)
class Devices:
    """The devices of a program that runs on several."""

    count: int
    is_fake: bool
    """One processor pretends to be all of them: counts, bytes and results are those of several, times are not."""
    meshes: tuple[str, ...] = ()
    """data=4,model=2 for each mesh that holds its inputs."""
    shares: tuple[DeviceShare, ...] = ()
    """By device; empty if it was not recorded."""


@dataclass(frozen=True)
class RankTimes:
    """One of several processes that run a program together."""

    rank: int
    host: str
    elapsed_s: tuple[float, ...] = ()
    """For each sample, from the common start to the end of its own call."""
    compile_s: float | None = None
    was_last: int = 0
    """In how many samples it ended last."""

    @property
    def median_s(self) -> float | None:
        return median(self.elapsed_s) if self.elapsed_s else None


@dataclass(frozen=True)
class Ranks:
    """The processes of a program, which start each sample together. Its time is that of the slowest."""

    ranks: tuple[RankTimes, ...]
    devices_each: int
    barrier_skew_s: tuple[float, ...] = ()
    """For each sample, how long after the first process the last one began: kept out of the times."""
    compared_outputs: int = 0
    """Pieces of outputs that several processes hold, and that are the same bytes in all of them."""

    @property
    def least_s(self) -> tuple[float, ...]:
        """For each sample the time of the process that ended first."""
        return tuple(map(min, zip(*(rank.elapsed_s for rank in self.ranks), strict=True)))


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

    @property
    def words(self) -> str:
        """out of memory"""
        return self.kind.replace("_", " ")

    @property
    def sentence(self) -> str:
        """out of memory in compile: RESOURCE_EXHAUSTED"""
        return f"{self.words} in {self.stage}: {self.message}"


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
class Measurement(Displayed):
    """One case, one environment, one run: one row. `print(m)` and, in a notebook, `m` show it; `repr(m)` is one line.

    Example:
        >>> m = benchax.bench(abs, "f32[8]", stages="build", store="off")
        >>> m.case.name, m.signature, m.stages.compile_s > 0
        ('abs', 'f32[8]', True)
        >>> m.why_absent("samples.wall")
        "only stages='build' was requested"
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
        by_process = group_by((s for s in self.samples if s.timer == timer), lambda s: s.process)
        return tuple(found[0] for found in by_process.values())

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
            raise NotMeasured(self.failure.sentence)
        why = self.why_absent(f"samples.{timer}" if timer else "samples")
        has = f"a timer that this row has: {', '.join(measured)}" if measured else ""
        raise NotMeasured(why or f"nothing requested the timer {timer or 'of a headline'}", has)

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


# ---- comparisons -----------------------------------------------------------------------------------------------------
#
# Two versions of a case, and the samples that judged them.


Metric = Literal["run", "compile", "peak", "constants", "flops"]
METRICS: dict[Metric, str] = {"run": "s", "compile": "s", "peak": "B", "constants": "B", "flops": "FLOP"}
"""The metrics of comparisons, with their units."""
Method = Literal["one process", "process pairs", "counted", "same program"]
"""How a comparison came about: both versions in one process, in two that take turns, or by reading the programs."""


@dataclass(frozen=True)
class Estimate:
    """A number and the ends of its 95 % interval. The ends are None if there are too few readings."""

    value: float
    low: float | None = None
    high: float | None = None

    def map(self, change: Callable[[float], float]) -> Estimate:
        """Changes all three numbers; the ends change places if `change` reverses their order."""
        low, high = (None if end is None else change(end) for end in (self.low, self.high))
        is_turned = low is not None and high is not None and low > high
        return Estimate(change(self.value), *((high, low) if is_turned else (low, high)))

    def text(self, describe: Callable[[float], str] = number, unit: str = "") -> str:
        """1.53 (1.51 – 1.60), or 1.53× (1.51 – 1.60) with a unit."""
        ends = self.text_of_ends(describe)
        return f"{describe(self.value)}{unit}" + (f" ({ends})" if ends else "")

    def text_of_ends(self, describe: Callable[[float], str] = number) -> str:
        """1.51 – 1.60; empty without an interval."""
        return "" if self.low is None or self.high is None else f"{describe(self.low)} – {describe(self.high)}"


@dataclass(frozen=True)
class Block:
    """Samples of two versions on the same buffers, taken alternately: pair i is `baseline_s[i]`, `candidate_s[i]`. The
    next block has new buffers and new executables."""

    process: int
    """Counted from 0; each is a fresh one."""
    baseline_s: tuple[float, ...] = field(repr=False)
    """Seconds per call."""
    candidate_s: tuple[float, ...] = field(repr=False)
    baseline_cpu_s: tuple[float, ...] = field(default=(), repr=False)
    """Processor time of all threads of the process, for each sample; empty if it was not read."""
    candidate_cpu_s: tuple[float, ...] = field(default=(), repr=False)

    @property
    def log_ratios(self) -> tuple[float, ...]:
        return _log_ratios(self.baseline_s, self.candidate_s)

    @property
    def cpu_log_ratios(self) -> tuple[float, ...]:
        """The logarithms of the ratios of processor times; empty if they were not read, or one is not positive."""
        known = all(self.baseline_cpu_s) and all(self.candidate_cpu_s)
        return _log_ratios(self.baseline_cpu_s, self.candidate_cpu_s) if known else ()


def _log_ratios(baseline: tuple[float, ...], candidate: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(math.log(c / b) for b, c in zip(baseline, candidate, strict=True))


@dataclass(frozen=True)
class Version:
    """One side of a comparison. `None` means unknown."""

    label: str
    commit: str | None = None
    is_dirty: bool | None = None
    jax: str | None = None
    program: str | None = None
    """sha256 of the program that ran; None if the function itself did."""


@dataclass(frozen=True)
class Comparison:
    """Two versions of a case, judged by one metric. Ratios are candidate over baseline.

    Example:
        >>> from benchax.model import CaseId, Version
        >>> c = benchax.Comparison(CaseId("fft"), "run", Version("v1"), Version("now"), "slower", ratio=1.25)
        >>> c.verdict, c.speedup
        ('slower', 0.8)
    """

    case: CaseId
    metric: Metric
    baseline: Version
    candidate: Version
    verdict: Verdict
    why: str = ""
    """Why it is unclear, or what the verdict does not speak for."""
    ratio: float | None = None
    low: float | None = None
    """The ends of the ratio's interval; None for what is counted, not timed."""
    high: float | None = None
    smallest_effect: float | None = None
    """A change of less than this share could have been missed."""
    baseline_value: float | None = None
    """Seconds (median), bytes or operations."""
    candidate_value: float | None = None
    """Seconds: the baseline's times the ratio. Two medians would be a second, worse answer to the same question."""
    blocks: tuple[Block, ...] = ()
    method: Method = "one process"
    confirmed: bool | None = None
    """Did a second, independent measurement give the same word? None if there was no second measurement."""
    numerics: Numerics | None = None
    """The agreement of the candidate's outputs against the baseline's."""
    failure: Failure | None = None
    """The failure of the side that could not be run."""
    remarks: tuple[Remark, ...] = ()
    environment: Environment | None = None
    compared_at: str = ""
    """UTC, ISO 8601."""
    signature: str = ""
    """Shapes and dtypes of the inputs of both; empty if nothing ran, and in what was stored before this was."""
    resolution: float = 0.05
    """ "same" means within this share."""
    cpu_ratio: float | None = None
    """The ratio of the processor times of the process, with its interval; None if that witness was not asked."""
    cpu_low: float | None = None
    cpu_high: float | None = None
    is_by_cpu_time: bool = False
    """Has the processor time decided, where the wall time left it open?"""
    work: Mapping[str, float] = field(default_factory=dict[str, float])
    """The work of one call of the candidate, as its author states it (`WorkPerCall.amounts`)."""

    def __repr__(self) -> str:
        ratio = f", ratio {self.estimate.text()}" if self.estimate else ""
        sides = f"{self.candidate.label} against {self.baseline.label}"
        return f"<Comparison {self.case.label}, {self.metric}, {sides}: {self.verdict}{ratio}>"

    @property
    def differs(self) -> bool:
        """Is the candidate's result another one than the baseline's, by more than rounding?"""
        return self.numerics is not None and not self.numerics.agrees

    @property
    def estimate(self) -> Estimate | None:
        """The ratio with its interval; None without a ratio, or if it is zero."""
        return Estimate(self.ratio, self.low, self.high) if self.ratio else None

    @property
    def speedup(self) -> float | None:
        """Baseline over candidate: above 1 the candidate is faster."""
        return 1 / self.ratio if self.ratio else None

    @property
    def pairs(self) -> int:
        return sum(len(block.baseline_s) for block in self.blocks)

    @property
    def processes(self) -> int:
        return len({block.process for block in self.blocks})
