"""The data types of benchax, all frozen. Read this first.

    Options       how to measure and when to stop
    CaseId        which case a row belongs to
    Environment   where it ran
    Stages        what happens once: transfer, trace, lower, compile, first run, dispatch
    Samples       raw clock readings of one timer
    Census        the operations in a timer's interval beside those of the function's own executable
    Memory, Cost  bytes and operations, each with its origin
    Numerics      how far the compiled outputs are from a reference
    Noise         what else the machine did meanwhile
    Remark        a sentence that belongs beside the numbers
    Failure       why there is no number
    Program       the measured function, kept so that it can run again
    WorkPerCall   what one call gets done, as its author says
    Rate          how much of it is done in a second
    Measurement   one case, one environment, one run: one row
    Block         samples of two versions, taken in turns
    Comparison    two versions of a case, judged by one metric

Seconds and bytes everywhere. `None` means *not measured*, never zero, and `Measurement.not_measured` says why.
Raw readings are kept; everything else (`per_call_s`, summaries) is derived when asked for.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any, Literal

from benchax.renderers import SelfRendering
from benchax.stats.summary import Summary, summarize, summarize_processes
from benchax.stats.verdicts import Verdict

Scalar = str | int | float | bool | None
Param = "Scalar | tuple[Param, ...] | Opaque"

Cache = Literal["off", "hit", "miss", "warm"]
Cold = Literal["process", "operations", "function"]
Severity = Literal["info", "warning", "error"]
Stop = Literal["precise", "time", "count"]
Form = Literal["direct", "branch"]
Reach = Literal["build", "first_run", "samples", "all"]
FailureKind = Literal[
    "error", "out_of_memory", "wrong_output", "wrong_shape", "crashed", "timeout", "not_run", "interrupted"
]

Metric = Literal["run", "compile", "peak", "constants", "flops"]
OTHER_PROCESSES = "samples.processes"
"""What a row lacks whose readings are of one process."""
METRICS: dict[Metric, str] = {"run": "s", "compile": "s", "peak": "B", "constants": "B", "flops": "FLOP"}
"""What versions are compared by, and its unit."""
Method = Literal["one process", "process pairs", "counted", "same program"]
"""How a comparison came about: both versions in one process, in two that take turns, or by reading the programs."""


@dataclass(frozen=True)
class Options:
    """How to measure and when to stop: what was in force, after all sources were merged (`options.resolve`)."""

    timer: str
    """"auto", or timer names separated by commas; the first is the headline."""
    max_time_s: float
    """Sampling of one timer stops after this long."""
    min_time_s: float
    """... and not before this long: a shorter look cannot see the machine change its pace."""
    max_samples: int
    relative_width: float
    """Stop when half the width of the 95 % interval of the median is below this share of the median."""
    sample_time_s: float
    """About how long one sample lasts. Short samples fall between preemptions."""
    max_warmup_s: float
    verify: str
    """"eager", "float64" or "off": what the compiled outputs are compared with."""
    memory: bool
    """Observe the peak of resident memory in an extra, untimed pass."""
    cold_process: bool
    """Measure in a new process, so that the stages are those of a cold process."""
    seed: int
    """Seeds the data made from specs."""
    store: str
    """Folder of the database, or "off"."""
    isolate: bool = False
    """Measure in a worker process, which can be killed."""
    timeout_s: float | None = None
    """No stage may take longer (sampling: beyond what its own options grant); the worker process is killed then."""
    memory_limit_bytes: int | None = None
    """Address space that a case may take beyond what a worker process has mapped before it."""
    stages: Reach = "all"
    """How far to go: build only, up to the first run (with verification and memory), up to the samples, or all, with
    transfers and dispatch."""
    processes: int = 1
    """Readings of so many processes, which share the time for sampling; 0: the engine chooses by how long the case
    is, and a row says how many it chose."""


@dataclass(frozen=True)
class Opaque:
    """A parameter value that JSON has no word for: its type and a text that identifies it."""

    type: str
    text: str


@dataclass(frozen=True)
class CaseId:
    """The stored identity of a case. Any Unicode text of any length, kept unchanged."""

    name: str
    params: tuple[tuple[str, Any], ...] = ()
    variant: str = ""
    tag: str = ""

    @property
    def label(self) -> str:
        """matmul[n=256, dtype=bf16] eager #tag: for people; two ids may share a label, never an id."""
        params = f"[{', '.join(f'{k}={param_text(v)}' for k, v in self.params)}]" if self.params else ""
        rest = [self.variant] if self.variant else []
        rest += [f"#{self.tag}"] if self.tag else []
        return " ".join([self.name + params, *rest])


def param_text(value: Any) -> str:
    return value.text if isinstance(value, Opaque) else str(value)


@dataclass(frozen=True)
class Environment:
    """Where it ran. Unknown is `None`."""

    host: str
    os: str
    python: str
    processor: str | None = None
    cores: int | None = None
    affinity: tuple[int, ...] | None = None
    memory_bytes: int | None = None
    governor: str | None = None
    huge_pages: str | None = None
    virtual_machine: bool | None = None
    benchax: str | None = None
    jax: str | None = None
    jaxlib: str | None = None
    numpy: str | None = None
    backend: str | None = None
    device_kind: str | None = None
    device_count: int | None = None
    process_count: int | None = None
    platform_version: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JAX settings that change programs or their speed."""
    flags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables that change programs or their speed (XLA_FLAGS, JAX_*, ...)."""
    commit: str | None = None
    branch: str | None = None
    is_dirty: bool | None = None

    @property
    def fingerprint(self) -> str:
        """12 hex digits, equal for rows whose times may be put side by side. Commit and process do not enter."""
        skip = {"commit", "branch", "is_dirty", "benchax"}
        facts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in skip}
        # The order in which settings were read does not matter.
        facts |= {"config": sorted(self.config.items()), "flags": sorted(self.flags.items())}
        text = repr(sorted(facts.items()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Transfer:
    """Copies between host and device, several times over. `is_zero_copy`: no byte moved, the array is a view."""

    size_bytes: int
    elapsed_s: tuple[float, ...]
    is_zero_copy: bool

    @property
    def median_s(self) -> float:
        return median(self.elapsed_s)

    @property
    def bandwidth_bytes_per_s(self) -> float | None:
        """None where nothing was copied: a bandwidth of a view is not a bandwidth."""
        return None if self.is_zero_copy or not self.median_s else self.size_bytes / self.median_s


@dataclass(frozen=True)
class CallFloor:
    """Calls of a program that does next to nothing, each followed by one of the measured program; all waited for.

    It has as many arguments and results as the measured one, and runs on the same thread.
    """

    elapsed_s: tuple[float, ...]
    """The seconds of each call that does next to nothing."""
    call_s: tuple[float, ...]
    """The seconds of each call of the measured program, in turns with those."""

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
    """What a call costs once. Each is one reading, but for transfers, `dispatch_s` (a median) and the floor."""

    transfer_in: Transfer | None = None
    trace_s: float | None = None
    lower_s: float | None = None
    compile_s: float | None = None
    first_run_s: float | None = None
    dispatch_s: float | None = None
    """Time until the call returns, when everything is warm. Where XLA:CPU runs inline it contains the work."""
    call_floor: CallFloor | None = None
    """What a call costs whatever the program does; of calls below a millisecond."""
    transfer_out: Transfer | None = None
    cache: Cache | None = None
    """JAX's persistent cache during compile_s; "warm": nothing was compiled, it was there already."""
    cold: Cold | None = None
    """What had never been compiled before: anything in this "process", some of the "operations" of this function, as
    far as functions were measured here, or just this "function"."""

    @property
    def transfer_in_s(self) -> float | None:
        return self.transfer_in.median_s if self.transfer_in else None

    @property
    def transfer_out_s(self) -> float | None:
        return self.transfer_out.median_s if self.transfer_out else None

    @property
    def call_floor_s(self) -> float | None:
        return self.call_floor.median_s if self.call_floor else None

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
    """What one run of the function does inside a timer's interval, and by itself: the proof that both are one work."""

    form: Form
    """How the function stands in the timer's program: as it is, or as the branch of a conditional, from which XLA moves
    nothing away."""
    operations: tuple[tuple[str, float, float], ...]
    """(operation, in the interval, by itself), dearest first: how many of it one call executes, bodies of loops times
    their trip counts; elements for what moves data, calls for custom calls."""


@dataclass(frozen=True)
class Samples:
    """Raw clock readings of one timer in one process."""

    timer: str
    iterations: int
    """Calls inside one sample."""
    elapsed_s: tuple[float, ...]
    """One reading per sample, for all its iterations, in the order taken; none is ever dropped."""
    disturbed: tuple[bool, ...] | None = None
    """Per sample: was the process preempted meanwhile? None where the system does not tell."""
    resolution_s: float | None = None
    """Smallest step of the clock that was seen."""
    overhead_s: float | None = None
    """What each reading contains of the timer itself, as measured beside it; None where nothing is known of it."""
    clock_tier: str | None = None
    """Which clock inside compiled code was read: "prebuilt", "built" or "python"."""
    regime: str | None = None
    """What the interval contains, where a timer has several regimes (loop: "thunks" or "single kernel")."""
    stop: Stop | None = None
    process: int = 0
    """Counted from 0, which is the one that measured everything else of the row."""
    answers: str = ""
    """The question that this timer's number answers, in a few words."""
    census: Census | None = None
    """The census of the timer's own program; None where the timer runs the function's own executable."""
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

    @property
    def observed_peak_bytes(self) -> int | None:
        """Arguments + observed rise of the compiled call."""
        if self.compiled_rise_bytes is None or self.argument_bytes is None:
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
    """Largest absolute difference; None where a structure, shape or dtype differs already."""
    max_rel: float | None = None
    """Largest difference over the largest magnitude of the reference leaf."""
    max_ulp: float | None = None
    """Largest difference in units in the last place of the compiled dtype at the reference's value."""
    nonfinite: int = 0
    """Elements that are finite on one side only, or NaN on one side only."""
    tolerance: float | None = None
    """The bound on max_rel in force for the worst leaf; beside it one on the root mean square, where rounding was
    measured."""
    why: str = ""
    """What disagreed, in a sentence; empty when it agrees."""


@dataclass(frozen=True)
class Noise:
    """What else the machine did while this row was measured. Shares are of all cores together, 0 to 1."""

    load_1m: float | None = None
    others_share: float | None = None
    """CPU time of other processes."""
    steal_share: float | None = None
    """CPU time that the hypervisor gave to other machines."""
    pace_scatter: float | None = None
    """Standard deviation of this machine's pace from moment to moment, as a share: of readings of a fixed piece of work
    in earlier runs. None where too few are known, and in rows of one process, whose intervals are of one moment."""


@dataclass(frozen=True)
class Remark:
    """A sentence that belongs beside the numbers. `code` is stable and can be searched for."""

    code: str
    severity: Severity
    message: str


@dataclass(frozen=True)
class Absent:
    """A number that is not there, and why: "not measured, because {why}". `what` is a path such as stages.trace_s."""

    what: str
    why: str
    is_by_choice: bool = False
    """Something else beside it answers the same question: said where a row is shown in full only."""


def find_why(absent: tuple[Absent, ...], what: str) -> str | None:
    """Why `what`, or the group that it is in, is not there; None where nobody says so."""
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
class Program:
    """The measured function as StableHLO, exported by `jax.export`: a function of its array leaves alone. A baseline is
    kept as such a program and run again beside the candidate; stored times are not compared."""

    sha256: str
    size_bytes: int
    content: bytes | None = field(default=None, repr=False, compare=False, metadata={"is_stored_apart": True})
    """Only where it was just made; a store keeps it once for all rows that have it."""
    source: str = field(default="", repr=False, compare=False, metadata={"is_stored_apart": True})
    """Digest of what it was exported from, by which a store finds it again; empty where that is not known."""


@dataclass(frozen=True)
class WorkPerCall:
    """What one call gets done, as its author says, and the rate of this machine that it stands beside."""

    amounts: Mapping[str, float] = field(default_factory=dict[str, float])
    """The work of one call, by name: {"samples": 32, "tokens": 4096, "bytes": 1e6}; each above 0."""
    peak_bytes_per_s: float | None = None
    """The most that a program was seen to reach here with as much memory (`measuring/peaks.py`); None where that was
    never measured, or no bytes are known."""


@dataclass(frozen=True)
class Rate:
    """How much of something is done in a second."""

    what: str
    per_s: float
    """By the median of the times."""
    low_per_s: float | None
    """The ends of its 95 % interval: of the times the greater end is the smaller rate."""
    high_per_s: float | None
    timer: str


@dataclass(frozen=True)
class Measurement(SelfRendering):
    """One case, one environment, one run: one row."""

    case: CaseId
    environment: Environment
    options: Options
    run_id: str
    started_at: str
    """UTC, ISO 8601 with microseconds."""
    signature: str = ""
    """The inputs as specs: f32[1024,128], key, axis=0."""
    failure: Failure | None = None
    stages: Stages = Stages()
    samples: tuple[Samples, ...] = ()
    memory: Memory = Memory()
    cost: Cost | None = None
    numerics: Numerics | None = None
    noise: Noise = Noise()
    program: Program | None = None
    work: WorkPerCall = WorkPerCall()
    remarks: tuple[Remark, ...] = ()
    not_measured: tuple[Absent, ...] = ()

    @property
    def status(self) -> Literal["ok", "failed"]:
        return "failed" if self.failure else "ok"

    @property
    def headline(self) -> Samples | None:
        """The samples of the first timer, in the first process."""
        return self.samples[0] if self.samples else None

    def samples_of(self, timer: str) -> Samples | None:
        """Those of the first process that has them."""
        return next((s for s in self.samples if s.timer == timer), None)

    def series_of(self, timer: str) -> tuple[Samples, ...]:
        """One for each process that has them."""
        found: dict[int, Samples] = {}
        for samples in self.samples:
            if samples.timer == timer:
                found.setdefault(samples.process, samples)
        return tuple(found.values())

    def summary(self, timer: str | None = None) -> Summary | None:
        """Summary of the seconds per call by `timer` (default: the headline) over all processes; None if it was not
        measured."""
        series = self.series_of(timer or (self.headline.timer if self.headline else ""))
        if len(series) < 2:
            return series[0].summary if series else None
        name = series[0].timer
        if name not in self._summaries:
            groups = [samples.per_call_s for samples in series]
            self._summaries[name] = summarize_processes(groups, self.moments)
        return self._summaries[name]

    @property
    def moments(self) -> float:
        """What times scatter by from moment to moment, as far as it is known; see `Noise.pace_scatter`."""
        return self.noise.pace_scatter or 0.0

    @cached_property
    def _summaries(self) -> dict[str, Summary]:
        """The summaries of timers that several processes were timed by: asked for many times over."""
        return {}

    def rates(self, timer: str | None = None) -> tuple[Rate, ...]:
        """The amounts of `work` in a second by `timer` (default: the headline). Empty where the time was not measured,
        or is not above what the timer itself costs."""
        headline = self.headline
        name = timer or (headline.timer if headline else "")
        summary = None if self.failure else self.summary(name)
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
        """Why the number at path `what` (or the group that it is in) is not there."""
        return find_why(self.not_measured, what)

    def asdict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class Block:
    """Samples of two versions on the same buffers, taken in turns: pair i is `baseline_s[i]`, `candidate_s[i]`. The
    next block has new buffers and new executables."""

    process: int
    """Counted from 0; each is a fresh one."""
    baseline_s: tuple[float, ...]
    """Seconds per call."""
    candidate_s: tuple[float, ...]
    baseline_cpu_s: tuple[float, ...] = ()
    """Processor time of all threads of the process, beside each sample; empty where it was not read."""
    candidate_cpu_s: tuple[float, ...] = ()

    @property
    def log_ratios(self) -> tuple[float, ...]:
        return _log_ratios(self.baseline_s, self.candidate_s)

    @property
    def cpu_log_ratios(self) -> tuple[float, ...]:
        """The logarithms of the ratios of processor times; empty where they were not read, or one of them is none."""
        known = all(self.baseline_cpu_s) and all(self.candidate_cpu_s)
        return _log_ratios(self.baseline_cpu_s, self.candidate_cpu_s) if known else ()


def _log_ratios(baseline: tuple[float, ...], candidate: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(math.log(c / b) for b, c in zip(baseline, candidate, strict=True))


@dataclass(frozen=True)
class Version:
    """One side of a comparison. Unknown is `None`."""

    label: str
    commit: str | None = None
    is_dirty: bool | None = None
    jax: str | None = None
    program: str | None = None
    """sha256 of the program that ran; None where the function itself did."""


@dataclass(frozen=True)
class Comparison:
    """Two versions of a case, judged by one metric. Ratios are candidate over baseline."""

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
    """Did a second, independent measurement say the same? None where none was taken."""
    numerics: Numerics | None = None
    """The agreement of the candidate's outputs against the baseline's."""
    failure: Failure | None = None
    """The failure of the side that could not be run."""
    remarks: tuple[Remark, ...] = ()
    environment: Environment | None = None
    compared_at: str = ""
    """UTC, ISO 8601."""
    signature: str = ""
    """Shapes and dtypes of the inputs of both; empty where nothing ran, and in what was stored before this was."""
    resolution: float = 0.05
    """ "same" means within this share."""
    cpu_ratio: float | None = None
    """The ratio of the processor times of the process, with its interval; None where that witness was not asked."""
    cpu_low: float | None = None
    cpu_high: float | None = None
    is_by_cpu_time: bool = False
    """Has the processor time decided, where the wall time left it open?"""
    work: Mapping[str, float] = field(default_factory=dict[str, float])
    """What one call of the candidate gets done, as its author says (`WorkPerCall.amounts`)."""

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
