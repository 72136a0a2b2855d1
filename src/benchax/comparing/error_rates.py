"""How often verdicts are wrong: of comparisons whose answer is known, because the change was planted."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from benchax.model import Comparison, Noise
from benchax.stats.intervals import share_interval, upper_limit
from benchax.stats.verdicts import Ratio, Verdict, ratio_of

UNCHANGED = 0.0
EFFECT_ALPHA = 0.05


@dataclass(frozen=True)
class Trial:
    """A comparison of run times with a kernel that has `planted` more to do; 0.05 is 5 %."""

    kernel: str
    planted: float
    comparison: Comparison


@dataclass(frozen=True)
class Tally:
    """The verdicts on one planted change."""

    planted: float
    verdicts: Counter[Verdict]
    failed: int
    """Comparisons that could not be run; they are no verdicts."""

    @property
    def judged(self) -> int:
        return self.verdicts.total()

    def interval(self, verdict: Verdict, level: float = 0.95) -> tuple[float, float]:
        """The interval of the share of `verdict`, as if comparisons erred independently of one another."""
        return share_interval(self.verdicts[verdict], self.judged, level)

    def at_most(self, verdict: Verdict, level: float = 0.95) -> float:
        return upper_limit(self.verdicts[verdict], self.judged, level)


@dataclass(frozen=True)
class ErrorRates:
    """All trials of one session of the protocol, and what they took."""

    trials: tuple[Trial, ...] = ()
    elapsed_s: float = 0.0
    """The seconds of the rounds that were finished."""
    noise: Noise = field(default_factory=Noise)
    """The machine's load by other processes at the same time."""

    @property
    def planted(self) -> list[float]:
        return sorted({trial.planted for trial in self.trials})

    @property
    def kernels(self) -> list[str]:
        return list(dict.fromkeys(trial.kernel for trial in self.trials))

    @property
    def per_verdict_s(self) -> float | None:
        judged = sum(tally.judged for tally in self.tallies())
        return self.elapsed_s / judged if judged else None

    def tallies(self) -> list[Tally]:
        return [self.tally(planted) for planted in self.planted]

    def tally(self, planted: float) -> Tally:
        found = [trial.comparison for trial in self.trials if trial.planted == planted]
        ran = [c for c in found if c.failure is None]
        return Tally(planted, Counter(c.verdict for c in ran), len(found) - len(ran))

    def effect(self, kernel: str, planted: float) -> Ratio | None:
        """The real slowdown, from all times of it; None if there are no times."""
        found = [t.comparison for t in self.trials if (t.kernel, t.planted) == (kernel, planted)]
        blocks = [block.log_ratios for c in found for block in c.blocks]
        return ratio_of(blocks, EFFECT_ALPHA) if blocks else None

    def baseline_s(self, kernel: str) -> float | None:
        """Seconds of a call of the kernel as it is; None if it never ran."""
        found = [t.comparison.baseline_value for t in self.trials if t.kernel == kernel]
        known = [value for value in found if value is not None]
        return median(known) if known else None


def planted_name(planted: float) -> str:
    """unchanged; +5 %"""
    return f"{100 * planted:+g} %" if planted else "unchanged"
