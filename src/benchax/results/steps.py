"""The parts of a training step's time, from a recording of a whole program.

Plain data. Each moment of a step counts once, so that the parts add up to the step. When a device works, the moment is
the device's, whatever Python does at the same time. In all other time the devices were idle; it is split by what they
waited for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PartKind = Literal["device", "input", "python", "waiting", "compile", "transfer", "dispatch", "unknown", "unseen"]
"""device: some operation of a compiled program ran. unknown: a call that the recording does
not hold as a whole was perhaps under way. All others are idle devices. input: the thread that begins the
steps waited for the next item of an iterator. python: it ran Python. waiting: it was off the processor, in neither.
compile: JAX traced, lowered or compiled. transfer: data was moved to, from or between devices. dispatch: JAX itself,
between Python and the device. unseen: Python, or waiting; no sample of the stack shows which."""
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
    """The innermost function where that is a library's: queue.py:171 get."""
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
