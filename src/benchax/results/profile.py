"""The content of a profile: where the time of a program went, on devices and in the compiler, and what stayed in
memory.

Plain data. Times are seconds and sums over the whole recording unless a name says otherwise. `None` is "not known".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Literal

from benchax.model import Remark
from benchax.renderers import Displayed
from benchax.results.inspection import Peaks, Roofline


@dataclass(frozen=True)
class Op:
    """One operation of a compiled program, all its calls together."""

    name: str
    """As XLA calls it: fusion.3, while.5."""
    module: str
    """The program: jit_f."""
    category: str
    """The opcode, or what the profiler says: fusion, while, custom-call. Empty: not known."""
    calls: int
    """How often it ran, in the whole recording and on all devices."""
    total_s: float | None
    """With what ran inside it, such as the body of a loop. None: the end of one of the calls is not in the trace."""
    self_s: float
    """Without what ran inside it. Two that ran at once, as on CPU, both count in full."""
    share: float
    """`self_s` as a part of the sum over all operations."""
    scope: str | None = None
    """Where it comes from, with `jax.named_scope`: jit(f)/loop/while/body/sin. None: the compiler's own, or the trace
    does not hold the program."""
    source: str | None = None
    """file.py:12, the line of the user's code."""
    hlo: str | None = None
    """Its line in the program."""
    shape: str | None = None
    """The shape of its result: f32[64,64]."""
    flops: float | None = None
    """The FLOPs of all its calls together, counted in the program. Operations inside it count by themselves, if the
    trace shows them. None: a custom call, or the trace does not hold the program."""
    bytes_accessed: float | None = None
    """Read and written by all its calls, cached or not; as `flops`."""
    named_scope: str = ""
    """Of `scope` what the program named itself, and derivatives: layer0/attention. Empty: none."""

    @property
    def per_call_s(self) -> float:
        """Mean self time of a call."""
        return self.self_s / self.calls

    def roofline(self, peaks: Peaks) -> Roofline | None:
        """All its calls at the rates of the machine. None: its work is not known."""
        if self.flops is None or self.bytes_accessed is None:
            return None
        return peaks.roofline(self.flops, self.bytes_accessed, self.bytes_accessed / self.calls, dtype_of(self.shape))


def dtype_of(shape: str | None) -> str:
    """The dtype of the matmuls with whose rate FLOPs are compared: f32 but for results of bf16 and f64."""
    found = re.match(r"\(?(bf16|f64)\[", shape or "")
    return found[1] if found else "f32"


@dataclass(frozen=True)
class Gap:
    """A time in which a device did nothing, between two operations of the recording."""

    start_s: float
    """Since the recording began."""
    length_s: float
    before: str
    """The operation that ended before it."""
    after: str
    """The one that began behind it."""


@dataclass(frozen=True)
class Device:
    """How busy one device was, from its first operation to its last."""

    name: str
    busy_s: float
    """Some operation ran: the union of their intervals."""
    idle_s: float
    gaps: tuple[Gap, ...] = ()
    """The longest, longest first."""
    communication_s: float | None = None
    """Some collective was under way, waiting for the others included. None: the trace does not hold all programs."""
    exposed_s: float | None = None
    """The part of that in which no other operation was under way. None: not known, as where XLA:CPU says late when one
    has ended."""

    @property
    def span_s(self) -> float:
        return self.busy_s + self.idle_s


@dataclass(frozen=True)
class Run:
    """One execution of one program on one device."""

    module: str
    device: str
    run_id: int
    start_s: float
    """Since the recording began."""
    device_s: float
    """Some operation of it ran: the union of their intervals."""


@dataclass(frozen=True)
class Lane:
    """The calls of operations on one device and thread, in the order in which they began; of very many the longest."""

    device: str
    thread: str
    """As the trace calls it."""
    names: tuple[str, ...]
    starts_s: tuple[float, ...]
    """Since the recording began."""
    ends_s: tuple[float, ...]
    depths: tuple[int, ...]
    """How many calls it is inside of."""
    n_calls: int
    """All that there were, also those that are left out."""


@dataclass(frozen=True)
class Step:
    """A marked piece of the program: `jax.profiler.StepTraceAnnotation`."""

    name: str
    number: int
    start_s: float
    length_s: float


@dataclass(frozen=True)
class CompilePass:
    """The compiler's work during the recording, by pass."""

    name: str
    calls: int
    self_s: float


@dataclass(frozen=True)
class ProgramSize:
    """How much there was to compile, and the line that most of it comes from."""

    instructions: int
    """The instructions of the optimised program, without those that only name or group values."""
    constant_bytes: int
    line: str
    """file.py:12. Empty: not known."""
    repeated: int
    """How many instructions come from that line."""
    stacks: int
    """From how many places the line was reached: several are calls, inlined; 1 is a loop in Python, unrolled, or a call
    that makes many."""
    loop: str = ""
    """file.py:10, the loop in Python that the line was reached from. Empty: there is none, or the file is not here."""


@dataclass(frozen=True)
class CompileCost:
    """The time to trace, lower and compile one function, for all its programs together, by JAX's own clock."""

    name: str
    """The program: jit_f."""
    source: str
    """The line of the user's that called it. Empty: not known."""
    programs: int
    """How often it was compiled."""
    trace_s: float
    lower_s: float
    compile_s: float
    passes: tuple[tuple[str, float], ...] = ()
    """XLA's longest passes in it, by self time, for compilations during the recording."""
    size: ProgramSize | None = None
    """The size of its largest program. None: the trace does not hold it."""

    @property
    def total_s(self) -> float:
        return self.trace_s + self.lower_s + self.compile_s


@dataclass(frozen=True)
class LiveBuffers:
    """Arrays of one shape and dtype that were alive after the profiled code and not before."""

    shape: tuple[int, ...]
    dtype: str
    count: int
    size_bytes: int
    """All of them together."""


MANY_EVENTS_PER_S = 20_000
"""At this rate or more, recording events can take some percent of the time: 0.1 to 3 µs each, on CPU (jax 0.10.2)."""


@dataclass(frozen=True)
class RecordingCost:
    """How much longer a step, or a call, takes because it is recorded."""

    recorded_s: float
    """While it was recorded, mean."""
    unrecorded_s: float | None
    """While nothing was, mean. None: not measured."""
    events: float
    """In one."""
    why: str = ""
    """It was not measured, because …"""

    @property
    def factor(self) -> float | None:
        """It takes so many times as long."""
        return None if self.unrecorded_s is None else self.recorded_s / self.unrecorded_s


# ---- the parts of a step ---------------------------------------------------------------------------------------------
#
# The parts of a training step's time, from a recording of a whole program.
#
# Plain data. Each moment of a step counts once, so that the parts add up to the step. When a device works, the moment
# is the device's, whatever Python does at the same time. In all other time the devices were idle; it is split by what
# they waited for.


PartKind = Literal["device", "input", "python", "waiting", "compile", "transfer", "dispatch", "unknown", "unseen"]
"""device: some operation of a compiled program ran. unknown: perhaps a call ran that the recording doesn't hold as a
whole. All others are idle devices. input: the thread that begins the steps waited for the next item of an iterator.
python: it ran Python. waiting: it was off the processor, in neither. compile: JAX traced, lowered or compiled.
transfer: data was moved to, from or between devices. dispatch: JAX itself, between Python and the device. unseen:
Python, or waiting; no sample of the stack shows which."""
StepMark = Literal["annotation", "program", "none"]
"""How steps were found: by the program's own `StepTraceAnnotation`, by the program that repeats, or not at all."""


@dataclass(frozen=True)
class PartLine:
    """A line of the user's that a part of the step was spent at."""

    source: str
    """file.py:31, with its whole path."""
    function: str
    share: float
    """Of the step."""
    within: str = ""
    """The innermost function if it belongs to a library: queue.py:171 get."""
    samples: int = 0
    """How often the stack was seen there; 0: known from the program, not from samples."""
    on_processor: float | None = None
    """The share of that time in which the thread was on a processor. None: not measured."""


@dataclass(frozen=True)
class StepPart:
    """A part of the mean step."""

    kind: PartKind
    mean_s: float
    share: float
    """Its share of the mean step."""
    lines: tuple[PartLine, ...] = ()
    """Largest share first."""


@dataclass(frozen=True)
class ProgramsPerStep:
    """How often a compiled program is begun in a step."""

    name: str
    per_step: float


@dataclass(frozen=True)
class OneStep:
    """A single step, the first or the slowest."""

    index: int
    """Counted from 0 in the recording."""
    length_s: float
    parts: tuple[tuple[PartKind, float], ...]
    """Seconds of each part; `unseen` stands for all Python, with samples or without."""
    more: PartKind | None = None
    """The part in which it differs most from the mean of the steady steps."""
    more_s: float = 0.0
    where: str = ""
    """The line at which that was seen most often; empty: not known."""
    others: tuple[ProgramsPerStep, ...] = ()
    """Programs that this step called and most other steps did not, such as an evaluation, if devices worked longer for
    it."""


@dataclass(frozen=True)
class StepSplit:
    """The steps of a recording, and what they are made of."""

    mark: StepMark
    name: str
    """The name of the program that repeats, or of the annotation. Empty: there is no step, and the parts belong to the
    recording."""
    lengths_s: tuple[float, ...]
    """The lengths of the steady steps, in order, or of the whole recording if there is no step."""
    parts: tuple[StepPart, ...]
    """Those that are not empty, the largest first."""
    called_at: str = ""
    """The line of the user's that begins a step. Empty: not known."""
    first: OneStep | None = None
    """The first step of the program. None: it was not recorded."""
    warm_up: int = 0
    """The number of omitted steps at the beginning: the first one, and the following ones that compiled again."""
    slowest: OneStep | None = None
    """None: fewer than three steps."""
    programs: tuple[ProgramsPerStep, ...] = ()
    """The other programs that begin in a step, the most frequent first."""
    first_compile_s: float | None = None
    """The time that JAX took to trace, lower and compile before the recording began. None: not known."""
    compiling_steps: int = 0
    """The number of steady steps in which something was compiled."""
    samples: int = 0
    """The number of stack samples inside the steps."""
    sampler_share: float | None = None
    """The part of the time that the sampler itself took, by its processor time. None: there was no sampler."""
    events_per_step: float = 0.0
    """The number of events in the trace per step, for all threads."""
    hottest: str = ""
    """The line whose operations the devices were busy with the longest in these steps. Empty: not known."""
    hottest_share: float = 0.0
    """Its share of the time of all operations of these steps."""

    @property
    def mean_s(self) -> float:
        return sum(self.lengths_s) / len(self.lengths_s)

    def share(self, kind: PartKind) -> float:
        """The share of the mean step; 0 if there is no such part."""
        return sum(part.share for part in self.parts if part.kind == kind)


@dataclass(frozen=True)
class Profile(Displayed):
    """One recording, read. `print` shows it; `table()` is its text, `ops` its data.

    Example:
        >>> p = benchax.profile(jax.jit(jnp.sin), jnp.ones(1000), runs=3)
        >>> len(p.devices) > 0, p.is_truncated
        (True, False)
    """

    title: str
    backend: str
    ops: tuple[Op, ...]
    """Most self time first."""
    devices: tuple[Device, ...] = ()
    runs: tuple[Run, ...] = ()
    """In the order in which they began."""
    steps: tuple[Step, ...] = ()
    split: StepSplit | None = None
    """Where the time of a step goes. None: no compiled program ran."""
    recording_cost: RecordingCost | None = None
    """The cost that recording adds to a step or a call. None: there were too few events to matter, or it was read
    later."""
    passes: tuple[CompilePass, ...] = ()
    """Most self time first."""
    compile_s: float | None = None
    """In the compiler, summed over its calls. None: nothing was compiled while recording."""
    compile_costs: tuple[CompileCost, ...] = ()
    """By function, the largest first, including compilations before the recording. Empty: the trace does not have
    them."""
    fingerprint: str | None = None
    """The fingerprint of the machine, its devices and settings, during the recording. None: the trace does not have
    it."""
    peaks: Peaks | None = None
    """The rates of that machine. None: they were not measured, or not known here."""
    n_events: int = 0
    """Everything that the trace holds, also what is no operation."""
    is_truncated: bool = False
    """Events are missing from the trace, so every sum here is too small."""
    left_over: tuple[LiveBuffers, ...] | None = None
    """Arrays that outlived the profiled code. None: not looked at."""
    live_bytes_before: int | None = None
    live_bytes_after: int | None = None
    timeline: Timeline | None = None
    """Memory during the recording. None: it was not requested."""
    files: Mapping[str, str] = field(default_factory=dict[str, str])
    """Kind → path: xplane, trace_json, perfetto, memory, timeline."""
    lanes: tuple[Lane, ...] = field(default=(), repr=False)
    """The calls over time, by device and thread."""
    profiler_s: float | None = None
    """The time of starting, stopping and writing, outside the profiled code."""
    remarks: tuple[Remark, ...] = ()

    @property
    def device_s(self) -> tuple[float, ...]:
        """Device seconds of each run."""
        return tuple(run.device_s for run in self.runs)

    def table(self) -> str:
        """As text."""
        return str(self)


@dataclass(frozen=True)
class OpChange:
    """Operations of one origin in two profiles: of the same scope, opcode and shape, whatever their names."""

    name: str
    """In the second profile; in the first where it is gone."""
    category: str
    scope: str | None
    shape: str | None
    before_s: float | None
    """Self time per run of its program, or per call: see `ProfileChange.per`. None: it was not there."""
    after_s: float | None
    calls_before: int
    calls_after: int
    source: str | None = None
    """file.py:12, in the second profile; in the first where it is gone."""
    shape_before: str | None = None
    """Where it has another dtype now."""
    module: str = ""
    """Its program, in the second profile; in the first where it is gone."""

    @property
    def more_s(self) -> float:
        """How much longer it takes; what is new or gone counts in full."""
        return (self.after_s or 0.0) - (self.before_s or 0.0)


@dataclass(frozen=True)
class LineChange:
    """The operations of one line in two profiles, for all origins together."""

    source: str
    """file.py:12. Empty: no line of the user's is behind them."""
    before_s: float | None
    """As of `OpChange`; 0 where the line had no operations, None where their time is not known."""
    after_s: float | None
    largest: OpChange
    """The operations that changed most."""
    module: str = ""
    """The program, where there are several: times per run of different programs have no sum."""

    @property
    def more_s(self) -> float | None:
        return None if self.before_s is None or self.after_s is None else self.after_s - self.before_s


@dataclass(frozen=True)
class PartChange:
    """A part of the mean step of a loop, in two profiles of whole programs."""

    kind: PartKind
    before_s: float
    after_s: float


@dataclass(frozen=True)
class ProfileChange(Displayed):
    """Two profiles side by side. Two single recordings: no verdict, which is the business of `benchax compare`."""

    before: str
    after: str
    per: Literal["run", "call"]
    ops: tuple[OpChange, ...]
    """The operations that take longer first, then those that take less."""
    remarks: tuple[Remark, ...] = ()
    lines: tuple[LineChange, ...] = ()
    """The same by line, the largest change in all runs first, in either direction."""
    steps_s: tuple[float, float] | None = None
    """The median step before and after. None: not both have steps."""
    parts: tuple[PartChange, ...] = ()
    """The parts of the mean step, the largest change first. Empty: the two profiles do not both have steps."""


# ---- memory over time ------------------------------------------------------------------------------------------


Kind = Literal["live_arrays", "in_use", "peak_in_use", "resident"]


@dataclass(frozen=True)
class Column:
    """One quantity at all times of a `Timeline`."""

    kind: Kind
    """live_arrays: arrays that Python holds. in_use and peak_in_use: the numbers of an accelerator's allocator; the
    peak is since its process began. resident: the pages of the process."""
    device: str
    """cpu:0. Empty: the whole process."""
    sizes_bytes: tuple[int | None, ...]


@dataclass(frozen=True)
class LineMemory:
    """The memory of the arrays that were made at one line, at all times of a `Timeline`, on all devices."""

    source: str
    """file.py:12, the innermost line of the user's; or a word for what is of none, or of other lines."""
    sizes_bytes: tuple[int | None, ...]


@dataclass(frozen=True)
class Timeline:
    """Readings in the order in which they were taken."""

    times_s: tuple[float, ...]
    """When each began, since the recording began."""
    reading_s: tuple[float, ...]
    """Processor time of each reading: what the program's Python lost by it."""
    columns: tuple[Column, ...]
    ended_because: str = ""
    """Why readings ended early; empty if nothing went wrong."""
    lines: tuple[LineMemory, ...] = ()
    """By the line that made them, the one that held most first. Empty: this JAX does not tell."""

    @property
    def incomplete(self) -> str:
        """A sentence, where readings ended before the recording did; else empty."""
        return f"memory was read for a part of the time only: {self.ended_because}" if self.ended_because else ""

    @property
    def interval_s(self) -> float | None:
        """The median distance of two readings."""
        return median(self._distances()) if len(self.times_s) > 1 else None

    @property
    def longest_gap_s(self) -> float | None:
        """The longest gap. Values that came and went in it were not seen."""
        return max(self._distances(), default=None)

    @property
    def share(self) -> float | None:
        """The part that readings took of the time from the first one to the last."""
        span = self.times_s[-1] - self.times_s[0] if self.times_s else 0.0
        return sum(self.reading_s[:-1]) / span if span > 0 else None

    def without(self, kind: Kind) -> tuple[str, ...]:
        """Devices for which this is unknown."""
        devices = dict.fromkeys(column.device for column in self.columns if column.kind == "live_arrays")
        known = {column.device for column in self.columns if column.kind == kind}
        return tuple(device for device in devices if device not in known)

    def _distances(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times_s)]
