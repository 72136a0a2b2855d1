"""The sequential test behind every verdict. It makes interim analyses of growing data. A second, independent
measurement confirms each change before a report names it.

    first stage     group after group, until all verdicts are clear at an interim analysis, or time is up
    second stage    of a change: new groups from the beginning, which only have to agree with the first stage

A group holds the samples of one process, or of one pair of processes. The caller that measures them asks a test for the
stage of the next group (`SequentialTest.due`). Nothing here starts a process.

Interim analyses take place after 2, 3, 4, 6 and 8 groups, and up to 24 if changes below 5 % are of interest. With one
process, variation between processes would look like a change. Each look at growing data is another chance to be wrong.
So alpha is the error rate of a single interval, and small. All looks and the second stage together err in less than 1 %
of comparisons of unchanged code (tests/stats/test_replay.py).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, Protocol, Self, TypeVar

from benchax.comparing.judging import confirm, withdraw
from benchax.model import Comparison, Metric
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA, SAME_WITHIN

LOOKS = (2, 3, 4, 6, 8)
"""After how many groups."""
FINE_LOOKS = (*LOOKS, 12, 16, 24)
"""Where "same" is to mean less than 5 %."""
SHARE_OF_FIRST = 0.5
"""The share of the time limit for the first stage. A change seen by then is measured again in the remaining time."""
NO_TIME = "not measured, because no time was left (--max-time)"
RUN: frozenset[Metric] = frozenset({"run"})
TIMES: frozenset[Metric] = frozenset({"run", "compile"})
"""The measured metrics; bytes and operations are counted."""


@dataclass(frozen=True)
class Effort:
    """How long to go on."""

    looks: tuple[int, ...] = LOOKS
    """The last one is the end."""
    max_time_s: float | None = None
    """No group is begun after this long, of either stage; none at all where it is 0 or less. A change that is
    seen when half of it is gone leaves the other half to the second stage."""
    alpha: float = ALPHA
    blocks: int = 3
    """The blocks of each process."""
    metrics: frozenset[Metric] = RUN
    """It goes on until these are clear: run times, and times to compile if asked for."""
    resolution: float = SAME_WITHIN
    """ "same" means within this share; what has a name is in proportion (`stats.verdicts.least_change`)."""
    skips_equal: bool = True
    """Programs that are one are not timed. False: to see how often unchanged code is called changed."""
    confirms: frozenset[Metric] | None = None
    """Changes of these are measured a second time, and times of no others have a name; None: of `metrics`."""


CONFIRMING = Effort(alpha=CONFIRMING_ALPHA, blocks=2)
"""The effort to confirm a change, in a separate measurement."""
PAIRS = Effort((8, 12, 16), alpha=0.01, confirms=TIMES)
"""The effort where groups are pairs of processes, one block each."""
CONFIRMING_PAIRS = replace(PAIRS, looks=(8, 12), alpha=CONFIRMING_ALPHA)


def effort_for(
    resolution: float = SAME_WITHIN, max_time_s: float | None = None, metrics: frozenset[Metric] = RUN
) -> Effort:
    """How long a comparison goes on that is to tell changes of `resolution` from none."""
    looks = LOOKS if resolution >= SAME_WITHIN else FINE_LOOKS
    return Effort(looks, max_time_s, metrics=metrics, resolution=resolution)


def confirming(first: Effort) -> Effort:
    """Returns the effort of a second measurement of the changes that `first` saw. Small changes need as many processes
    and blocks as the first time. The first two builds of a process are not compared, so compiling needs a third block.
    """
    is_fine = first.resolution < SAME_WITHIN
    looks = FINE_LOOKS if is_fine else CONFIRMING.looks
    blocks = first.blocks if is_fine or "compile" in first.metrics else CONFIRMING.blocks
    return replace(first, looks=looks, alpha=CONFIRMING.alpha, blocks=blocks)


class StageSamples(Protocol):
    """The measurements of one paired run in one stage."""

    def comparisons(self, alpha: float) -> list[Comparison]:
        """Compares all candidates with the baseline, by all metrics. A failed candidate has just one comparison."""
        ...

    def rivals(self, alpha: float) -> list[Comparison]:
        """Comparisons of two that are not the baseline, where a place in a ranking rests on them."""
        ...

    def start_again(self) -> Self:
        """Nothing yet of the same paired run, for the second stage."""
        ...


S = TypeVar("S", bound=StageSamples)


@dataclass
class Stage(Generic[S]):
    """One measurement of a paired run."""

    samples: S
    effort: Effort
    groups: int = 0
    """The number of groups taken. The caller counts each group, even if it failed."""

    def analyze(self) -> tuple[list[Comparison], list[Comparison]]:
        """The comparisons and the rivals, by the groups so far."""
        return self.samples.comparisons(self.effort.alpha), self.samples.rivals(self.effort.alpha)

    def is_done(self, is_over: bool) -> bool:
        """Is there nothing to be learned from another group, or no time for one?"""
        if is_over or self.groups >= self.effort.looks[-1]:
            return True
        if not self.groups:
            return False
        found, rivals = self.analyze()
        timed = [c for c in found if c.metric in self.effort.metrics and _is_timed(c)]
        # A clear verdict between two looks ends nothing: stopping at the first one would err more often than alpha.
        if self.groups not in self.effort.looks:
            return not timed
        return all(c.verdict != "unclear" for c in (*timed, *rivals))


def _is_timed(comparison: Comparison) -> bool:
    """Not where a side has failed, nor where both are one program."""
    return comparison.failure is None and comparison.method not in ("same program", "counted")


class SequentialTest(Generic[S]):
    """A paired run on its way to its verdicts.

    Args:
        samples: nothing yet.
        second: the effort of the second stage; default: `confirming(effort)`.
    """

    def __init__(self, samples: S, effort: Effort, second: Effort | None = None) -> None:
        self.first = Stage(samples, effort)
        self.second: Stage[S] | None = None
        """The measurement that confirms a change."""
        self.has_ended = False
        self._has_been_halved = False
        self._confirming = second or confirming(effort)
        self._metrics = effort.metrics if effort.confirms is None else effort.confirms

    def due(self, time_gone: float = 0.0) -> Stage[S] | None:
        """Returns the stage of the next group; None if there is nothing left to measure.

        Args:
            time_gone: the used share of the time limit; 0 without a limit, and 1 if it is over.
        """
        if self.has_ended:  # remembered: with many cases the same analyses again would take seconds
            return None
        is_over = time_gone >= 1
        self.has_ended = (self.second or self.first).is_done(is_over)
        # At half of the time a change is confirmed in what is left. Asked once: each look may err.
        is_half = time_gone >= SHARE_OF_FIRST and not self._has_been_halved
        if self.second is None and (self.has_ended or is_half):
            self._has_been_halved = True
            found, rivals = self.first.analyze()
            if any(map(self._is_change, (*found, *rivals))):
                self.second = Stage(self.first.samples.start_again(), self._confirming)
                self.has_ended = is_over
        return None if self.has_ended else self.second or self.first

    @property
    def most_groups_left(self) -> int:
        """Counts those of both stages, where every look but the last leaves something unclear."""
        if self.has_ended:
            return 0
        if self.second is not None:
            return self.second.effort.looks[-1] - self.second.groups
        return self.first.effort.looks[-1] - self.first.groups + self._confirming.looks[-1]

    def comparisons(self) -> list[Comparison]:
        """Only changes that the second stage shows too keep their names."""
        found, stage = self.first.samples.comparisons(self.first.effort.alpha), self.second
        if not self.first.groups:
            found = [replace(c, why=NO_TIME) if _is_timed(c) else c for c in found]
        elif stage is not None and self.has_ended and stage.groups < stage.effort.looks[0] and not stage.is_done(False):
            no_time = "; no time was left to measure it again (--max-time)"
            found = [withdraw(c, no_time) if self._is_change(c) else c for c in found]
        elif stage is not None:
            listed = stage.samples.comparisons(stage.effort.alpha)
            second: dict[tuple[str, Metric], Comparison] = {(c.candidate.label, c.metric): c for c in listed}
            found = [
                # If a side failed there, only its run has the reason.
                confirm(c, second.get((c.candidate.label, c.metric)) or second[c.candidate.label, "run"])
                if self._is_change(c)
                else c
                for c in found
            ]
        return [self._withhold(c) for c in found]

    def _is_change(self, comparison: Comparison) -> bool:
        """Is it one that chance could have made?"""
        return comparison.metric in self._metrics and comparison.verdict in ("slower", "faster")

    def _withhold(self, comparison: Comparison) -> Comparison:
        """Times that the test was not about were looked at once, and confirmed by nothing: no change has a name."""
        is_asked = comparison.metric in self._metrics
        if is_asked or not _is_timed(comparison) or comparison.verdict not in ("slower", "faster"):
            return comparison
        why = "seen once and not confirmed: set a limit for it, and it is measured"
        return replace(comparison, verdict="unclear", why=why)
