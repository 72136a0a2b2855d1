"""Two versions of a case, and the samples that judged them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from benchax.model.identity import CaseId, Environment
from benchax.model.measurement import Failure, Numerics, Remark
from benchax.stats.verdicts import Verdict
from benchax.units import number

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
        around = "" if self.low is None or self.high is None else f" ({number(self.low)}–{number(self.high)})"
        ratio = "" if self.ratio is None else f", ratio {number(self.ratio)}{around}"
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
