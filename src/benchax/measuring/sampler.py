"""A case sampler: how a built program is checked, warmed up and sampled. The rest of a measurement is the same for all.

`TimerSampler` verifies the result and samples with every chosen timer, as `bench` does. A grid has one of trials.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import jax

from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.measuring import timers
from benchax.measuring.jax_settings import keep_programs
from benchax.measuring.record import Record, Undecided
from benchax.measuring.sampling import Warmup, believable, call_again, collect, warm_up, warm_up_exactly
from benchax.measuring.stopping import PROCESSES, most_processes, share_time
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.model import OTHER_PROCESSES, Absent, Options
from benchax.watching.compiles import watch_compiles


class CaseSampler(Protocol):
    """The contract. Results go into the record; exceptions of the function pass through."""

    @property
    def examines(self) -> bool:
        """Is the function looked at more closely: do two traces of it differ, was it folded? That takes some 5 ms, and
        is the same for all cells of a function."""
        ...

    def check(self, record: Record, subject: Subject) -> None:
        """After the first run: is its result worth timing?"""
        ...

    def warm_up(self, record: Record, subject: Subject, last_s: float | None) -> None:
        """Calls until times are steady.

        Args:
            last_s: seconds of the call before; None if it is not known, or contains more than the call.
        """
        ...

    def sample(self, record: Record, subject: Subject) -> None:
        """Takes the samples."""
        ...


@dataclass(frozen=True)
class TimerSampler:
    """Verifies, and samples with every chosen timer."""

    case: Case
    options: Options
    examines: bool = True

    def check(self, record: Record, subject: Subject) -> None:
        record.enter("verify")
        with record.or_absent("numerics"):
            if self.options.verify == "off":
                raise NotMeasured("verification is switched off")
            from benchax.measuring.verification import verify  # noqa: PLC0415  # takes 0.1 s to load

            try:
                with keep_programs():
                    record.numerics = verify(subject, self.options.verify, self.case.reference, record.notes)
            except Undecided as error:
                record.undecided = error.problem
                raise

    def warm_up(self, record: Record, subject: Subject, last_s: float | None) -> None:
        record.enter("warm-up")
        if self.case.calls is not None:
            record.warmup = warm_up_exactly(subject.ready, self.case.calls, record.first_call_s)
            record.compiles += record.first_compiles if record.warmup.long_calls_s else 0
            return
        record.warmup = warm_up(subject.ready, self.options.max_warmup_s, first_s=last_s or 0.0)

    def sample(self, record: Record, subject: Subject) -> None:
        exactly = self.case.calls
        auto = self.options.timer == "auto" and exactly is None
        warmup = call_again(subject.ready, record.warmup, timers.AUTO_LIMIT_S) if auto else record.warmup
        options, why_alone = self._share_time(record, warmup.least_s)
        choice = timers.choose(options.timer, warmup.least_s, warmup.timed)
        record.absent += [Absent(f"samples.{name}", why) for name, why in choice.left_out]
        for name in choice.names:
            if why := timers.why_not_needed(name, options.timer, record.samples):
                record.absent.append(Absent(f"samples.{name}", why, is_by_choice=True))
                continue
            record.enter(name)
            with record.or_absent(f"samples.{name}"):
                with keep_programs():  # the function itself is compiled before, without it
                    prepared = timers.TIMERS[name].prepare(subject)
                _sample_with(name, prepared, record, options, warmup, exactly and exactly.per_sample)
        if record.samples:
            record.absent.append(Absent(OTHER_PROCESSES, why_alone))

    def _share_time(self, record: Record, least_s: float) -> tuple[Options, str]:
        """This process's share of the time for sampling, and why there are no further processes.

        `workers/replicated.py` revises the reason when it starts some.
        """
        asked = self.options.processes
        one = f"one process was requested; --processes {PROCESSES} asks for more"
        why = one if asked == 1 else "no further process was started"
        record.processes = 1
        try:
            record.processes = most_processes(asked, least_s, record.stages.build_s, jax.default_backend())
        except NotMeasured as error:
            why = error.problem
        return share_time(self.options, record.processes), why


def _sample_with(
    name: str, prepared: PreparedTimer, record: Record, options: Options, warmup: Warmup, calls: int | None
) -> None:
    """Raises `NotMeasured` if what was read cannot be believed."""
    with watch_compiles() as log:
        samples = collect(
            name,
            prepared,
            options,
            lambda share: record.progress(name, share),
            call_s=warmup.least_s,
            calls=calls,
            taken_s=warmup.long_calls_s if name == "wall" else (),
        )
    record.compiles += log.compiles
    # Judged here and not in `collect`, because only the record knows how long whole calls took.
    floor, walls = record.stages.call_floor, [s.summary.min_s for s in record.samples if s.timer == "wall"]
    seen = [*record.warmup.windows_s, *(floor.call_s if floor else ()), *filter(None, walls)]
    shortest_s = min(seen, default=0.0)
    record.samples.append(believable(replace(samples, answers=timers.TIMERS[name].answers), shortest_s))
