"""measure(case, options) -> Measurement: the order of work, as a list of calls.

    prepare (inputs, trace, lower, compile) → artifacts → first run → check → transfers → warm up → dispatch → samples
    → memory → remarks

After a failure, the row keeps the earlier measurements, together with the failure. A part that cannot be measured here
gives the reason, and the rest goes on. `Options.stages` ends the list earlier. Then memory comes before the samples, as
part of warming up, so that a slow function is called as seldom as possible. A `CaseSampler` decides how the case is
verified and sampled.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import jax

from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.machine import noise
from benchax.measuring import memory, purity, timers
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.exported import digest_source, exported
from benchax.measuring.inputs import amounts_of
from benchax.measuring.jax_settings import keep_programs
from benchax.measuring.prepare import (
    Prepared,
    call_floor,
    devices_of,
    dispatch,
    do_first_work,
    note_first_uses,
    prepare,
    record_shares,
    transfer_in,
    transfer_out,
)
from benchax.measuring.record import Progress, Record, quiet
from benchax.measuring.remarks import remarks
from benchax.measuring.sampling import (
    PROCESSES,
    Warmup,
    call_again,
    collect,
    most_processes,
    reject_implausible,
    share_time,
    warm_up,
    warm_up_exactly,
)
from benchax.measuring.timers.base import PreparedTimer, Subject, on_fresh_stack
from benchax.model import OTHER_PROCESSES, Absent, Cold, Measurement, Options
from benchax.program.compiled import cost, memory_plan
from benchax.static_leaves import reveal
from benchax.units import plural, seconds
from benchax.watching.compiles import watch_compiles

# ---- sampler ---------------------------------------------------------------------------------------------------------
#
# A case sampler: how a built program is checked, warmed up and sampled. The rest of a measurement is the same for all.
#
# `TimerSampler` verifies the result and samples with every chosen timer, as `bench` does. A grid has one of trials.


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

    def warm_up(self, record: Record, subject: Subject) -> None:
        """Calls until times are steady."""
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
        with record.recording_absence("numerics"):
            if self.options.verify == "off":
                raise NotMeasured("verification is switched off")
            from benchax.measuring.verification import verify  # noqa: PLC0415  # takes 0.1 s to load

            with keep_programs():
                record.numerics = verify(subject, self.options.verify, self.case.reference, record.notes)

    def warm_up(self, record: Record, subject: Subject) -> None:
        record.enter("warm-up")
        if self.case.calls is not None:
            record.warmup = warm_up_exactly(subject.ready, self.case.calls, record.first_call_s)
            record.compiles += record.first_compiles if record.warmup.long_calls_s else 0
            return
        record.warmup = warm_up(subject.ready, self.options.max_warmup_s, first_s=record.stages.first_run_s or 0.0)

    def sample(self, record: Record, subject: Subject) -> None:
        exactly = self.case.calls
        auto = self.options.timer == "auto" and exactly is None
        warmup = call_again(subject.ready, record.warmup, timers.AUTO_LIMIT_S) if auto else record.warmup
        options, why_alone = self._share_time(record, warmup.least_s)
        names, left_out = timers.choose(options.timer, warmup.least_s, warmup.timed)
        record.absent += left_out
        for name in names:
            if why := timers.why_not_needed(name, options.timer, record.samples):
                record.absent.append(Absent(f"samples.{name}", why, is_by_choice=True))
                continue
            record.enter(name)
            with record.recording_absence(f"samples.{name}"):
                with keep_programs():  # the function itself is compiled before, without it
                    prepared = timers.TIMERS[name].prepare(subject)
                _sample_with(name, prepared, record, options, warmup, exactly and exactly.per_sample)
        if record.samples:
            record.absent.append(Absent(OTHER_PROCESSES, why_alone))

    def _share_time(self, record: Record, least_s: float) -> tuple[Options, str]:
        """This process's share of the time for sampling, and why there are no further processes.

        `workers/executors.py` revises the reason when it starts some.
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
    # Judge here and not in `collect`, because only the record has the times of whole calls.
    floor, walls = record.stages.call_floor, [s.summary.min_s for s in record.samples if s.timer == "wall"]
    seen = [*record.warmup.windows_s, *(floor.call_s if floor else ()), *filter(None, walls)]
    shortest_s = min(seen, default=0.0)
    record.samples.append(reject_implausible(replace(samples, answers=timers.TIMERS[name].answers), shortest_s))


def measure(
    case: Case,
    options: Options,
    *,
    run_id: str,
    progress: Progress = quiet,
    cold: Cold = "function",
    prepared: Prepared | None = None,
    sampler: CaseSampler | None = None,
    record: Record | None = None,
) -> Measurement:
    """Measures one case. Never raises for what the user's function does: that becomes the row's failure.

    Args:
        options: resolved, without `None`.
        cold: what had never been compiled before in this process, for `Stages.cold`.
        prepared: the case, where it has been built already; its first run is still to come.
        sampler: default: one that verifies, and samples with every chosen timer.
        record: is filled; default: a new one that reports to `progress`.
    """
    record, failure = record or Record(progress), None
    # A cold process shows what JAX does once per process. Warming up would do that before the measurement.
    if cold != "process":
        do_first_work()
    # A function that changes the working folder changes it for itself: results would be stored in its folder. By
    # descriptor, because the folder may have been removed, or cannot be read.
    folder = os.open(".", getattr(os, "O_PATH", os.O_RDONLY))
    try:
        subject = fill(record, case, options, sampler or TimerSampler(case, options), cold, prepared)
        _export(record, subject, case, options)
    except (Exception, SystemExit) as error:  # a benchmark that calls sys.exit ends itself, not the run
        failure = diagnose(error, record.stage)
        _tell(case, "error", error)
    finally:
        os.fchdir(folder)
        os.close(folder)
    return record.row(case, options, run_id, failure)


def _tell(case: Case, what: str, value: Any) -> None:
    if case.listen is not None:
        case.listen(what, value)


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silences JAX's warnings that remarks repeat with numbers; as warnings they would break the progress display."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
        yield


@_without_warnings()
def fill(
    record: Record,
    case: Case,
    options: Options,
    sampler: CaseSampler,
    cold: Cold = "function",
    prepared: Prepared | None = None,
) -> Subject:
    """Fills the record, as far as `options.stages` reaches. Exceptions of the user's function pass through; the record
    then has all earlier results."""
    if prepared is None:
        prepared = prepare(case, options.seed, record.enter)
    prepared.tell = record.enter
    record.signature = prepared.inputs.signature
    with record.recording_absence("work"):
        record.amounts = amounts_of(case, prepared.inputs)
    subject = _build(record, case, prepared, cold, sampler.examines, options.store != "off")
    subject = _run(record, case, prepared, subject, options, sampler)
    why = f"only stages={options.stages!r} was requested"
    parts = [*_LEFT_OUT][: len(_REACHES) - 1 - _REACHES.index(options.stages)]
    record.absent += [Absent(what, why, is_by_choice=True) for part in parts for what in part]
    record.noise = noise.finish(record.reading)
    record.remarks = remarks(record, prepared, subject, sampler.examines)
    return subject


def _build(record: Record, case: Case, prepared: Prepared, cold: Cold, examines: bool, is_stored: bool) -> Subject:
    built = prepared.built
    _artifacts(record, built)
    _tell(case, "lowered", built.lowered)
    _tell(case, "hlo", prepared.hlo)
    cold = note_first_uses(built.traced, cold)
    record.stages = replace(built.stages, cache=built.cache, cold=cold if built.seconds else None)
    subject = replace(prepared.subject, hlo=prepared.hlo)
    if case.listen is not None:
        _tell(case, "leaves", subject.dynamic_leaves)
    if not examines:
        return subject
    if is_stored:
        record.source = digest_source(built.traced, built.lowered)
    record.enter("trace")
    with record.recording_absence("purity"):
        record.purity = purity.check(subject, built, case.id.name, prepared.surroundings.put_back)
        if why := purity.why_not_watched():
            record.absent.append(Absent("purity.clock_reads", why))
    return replace(subject, impure=record.purity.difference)


def _run(
    record: Record, case: Case, prepared: Prepared, subject: Subject, options: Options, sampler: CaseSampler
) -> Subject:
    """Calls it, as far as was asked for; returns the subject with its outputs, where it was called."""
    if options.stages == "build":
        return subject
    is_whole = options.stages == "all"
    subject = _called(record, case, prepared, subject, sampler)
    if not is_whole:
        memory.observe_memory(record, subject, options)
    if options.stages == "first_run":
        return subject
    if is_whole:
        record.enter("transfer")
        with record.recording_absence("stages.transfer_in"):
            record.stages = replace(record.stages, transfer_in=transfer_in(subject.inputs))
        with record.recording_absence("stages.transfer_out"):
            record.stages = replace(record.stages, transfer_out=transfer_out(subject.call))
    sampler.warm_up(record, subject)
    if is_whole:
        _dispatch(record, subject, prepared)
    sampler.sample(record, subject)
    if is_whole:
        _drop_disturbed_floor(record, subject)
        if record.devices is not None:
            record.enter("devices")
            with record.recording_absence("devices.shares"):
                record.devices = replace(record.devices, shares=record_shares(subject, record.devices.count))
        # Do this after all timing. While memory is observed, glibc maps every block again, and page faults slow calls
        # down.
        memory.observe_memory(record, subject, options)
    return subject


FLOOR_APART = 1.5
"""A call next to the floor and a call by `wall` differ by less than this factor, unless something disturbed them."""
_REACHES = ("build", "first_run", "samples", "all")
# One group for each step below "all": the results that are missing if the list of work ends there.
_LEFT_OUT = (
    ("stages.transfer_in", "stages.transfer_out", "stages.dispatch_s", "stages.call_floor"),
    ("samples",),
    ("stages.first_run_s", "numerics", "memory.compiled_rise_bytes", "memory.eager_rise_bytes"),
)


def _called(record: Record, case: Case, prepared: Prepared, subject: Subject, sampler: CaseSampler) -> Subject:
    """The first run, and whether it is right."""
    first = prepared.call_first()
    record.first_call_s, record.first_compiles = first.elapsed_s, first.compiles
    if first.compiles:
        why = f"the first call compiled {plural(first.compiles, 'program')} itself"
        record.absent.append(Absent("stages.first_run_s", why))
    else:
        record.stages = replace(record.stages, first_run_s=first.elapsed_s)
    subject = replace(subject, outputs=first.subject.outputs, donates=first.subject.donates)
    prepared.surroundings.check(case.id.name)
    record.devices = devices_of(subject)
    if record.devices is not None:
        record.memory = replace(record.memory, devices=record.devices.count)
    record.notes.returns_nothing = not jax.tree.leaves(subject.outputs)
    _tell(case, "outputs", reveal(subject.returned))
    sampler.check(record, subject)
    return subject


def _dispatch(record: Record, subject: Subject, prepared: Prepared) -> None:
    record.enter("dispatch")
    record.stages = replace(record.stages, dispatch_s=on_fresh_stack(dispatch)(subject.ready))
    with record.recording_absence("stages.call_floor"):
        with keep_programs():
            floor = call_floor(subject, record.warmup.last_s, prepared.inline_flops)
        record.stages = replace(record.stages, call_floor=floor)


def _drop_disturbed_floor(record: Record, subject: Subject) -> None:
    """Drops a call floor from a moment when calls took far more or less time than `wall` shows. Such a floor can't be
    compared with the other times of the row."""
    floor = record.stages.call_floor
    wall_s = next((s.summary.median_s for s in record.samples if s.timer == "wall"), 0.0)
    if floor is None or subject.needs_renewal or wall_s <= 0:
        return
    if not 1 / FLOOR_APART < floor.median_call_s / wall_s < FLOOR_APART:
        record.stages = replace(record.stages, call_floor=None)
        why = f"calls next to it took {seconds(floor.median_call_s)}, and wall reads {seconds(wall_s)}"
        record.absent.append(Absent("stages.call_floor", f"{why}: the machine was disturbed"))


@_without_warnings()
def _export(record: Record, subject: Subject, case: Case, options: Options) -> None:
    """The program, for comparisons to come; looked up where it is stored, which takes a tenth of exporting it."""
    if options.store == "off":
        record.absent.append(Absent("program", "the row is not stored"))
        return
    with record.recording_absence("program"):
        stored = case.find_program(record.source) if case.find_program and record.source else None
        record.program = stored or replace(exported(subject), source=record.source)


def _artifacts(record: Record, built: Prepared) -> None:
    """Reads the compiler's plan and cost."""
    record.enter("artifacts")
    record.absent += built.absent
    if built.compiled is None:
        whys = (a.why for a in built.absent if a.what == "stages.compile_s")
        why = next(whys, "its compiled program cannot be reached")
        record.absent += [Absent("memory.plan", why), Absent("cost", why)]
        return
    captured = sum(getattr(c, "nbytes", 0) for c in built.traced.jaxpr.consts) if built.traced else None
    record.memory = memory_plan(built.compiled, captured_bytes=captured, hlo_text=built.hlo)
    record.cost = cost(built.compiled, built.hlo)
