"""One cell of a grid, in the worker: the engine, with a sampler of trials.

Each step is announced before it begins (`say`), so that the parent can stop and name a step that takes too long. The
results so far travel with the announcements: a cell that is killed in its third trial keeps two. An exception of the
user's function becomes the answer's failure.

A trial of `wall` is the latency that a caller sees: one call and the wait for all its outputs, as `bench` reads it. It
repeats for 1 ms and 6 calls, but makes 50 calls at most, and no other one after 5 ms. Fresh buffers for a function that
donates its inputs are made before each. Any other timer is prepared on the inputs of each trial and takes readings for
TRIAL_S. `in_graph` and `loop` compile separate programs for this.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax

from benchax.case import Case, make_case
from benchax.grids import outputs as trees
from benchax.grouping import group_by
from benchax.json_values import Json
from benchax.machine import noise
from benchax.measuring import timers
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.engine import fill
from benchax.measuring.inputs import make_inputs
from benchax.measuring.record import Record
from benchax.measuring.sampling import NO_WARMUP, call_again, collect, reject_implausible
from benchax.measuring.timers import wall
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Failure, Options, Samples
from benchax.static_leaves import reveal
from benchax.units import size
from benchax.watching.compiles import watch_compiles
from benchax.workers.task import Say

STEPS = {"first run": "run"}
"""The names that a grid has for steps of the engine."""
OF_OURS = frozenset({"artifacts"})
"""Nothing of the user's runs in these: they belong to the step before, and telling the parent takes 0.2 ms."""
LONG_CALL_S = 0.01
"""A call as long as this is a reading without a warm call before it: what warmth gains is below its noise."""

SPAN_S = 0.001
MOST_CALLS = 50
TRIAL_S = 0.05
"""The length of readings by a timer that prepares: programs take longer to compile than this."""

NO_NUMERICS = Absent("numerics", "a grid compares functions with one another, not with their eager forms")


@dataclass(frozen=True)
class CellRequest:
    """All that a worker needs to know about a cell."""

    function: str
    fn: Callable[..., Any]
    value: Any
    """The data point (`plan.points`)."""
    make: Callable[[Any, Any], Any] | None
    seeds: tuple[int, ...]
    """One per trial."""
    options: Options
    """The options of its row; the first trial's seed takes the place of theirs."""
    check: Callable[..., Any] | None = None
    """A check of the output and the inputs. Without a check, the output must have the shape of `expected`."""
    expected: str = ""
    """A shape text; empty if there is nothing to agree with yet."""
    expected_from: str = ""
    """The function whose shape that is."""
    output_limit_bytes: int = 2**30
    examines: bool = True
    """Is it the first cell of its function? See `CaseSampler.examines`."""


@dataclass(frozen=True)
class CellAnswer:
    """The results of a cell, besides the news of its row."""

    failure: Failure | None
    """None if all went well."""
    outputs: tuple[Json | None, ...]
    """The tree of each trial (`outputs.take_apart`)."""
    not_kept: str
    """Why there are no outputs; empty if there are."""


class Refused(Exception):
    """A result that cannot be right. Its argument is the failure."""


def measure_cell(request: CellRequest, say: Say) -> CellAnswer:
    sampler, failure = TrialSampler(request), None

    def announce(step: str, share: float = 0.0) -> None:
        # Every call gets the full budget.
        if step not in OF_OURS:
            say(STEPS.get(step, step), again=True, shape=sampler.shape, **record.news())

    record = Record(announce)
    try:
        seed = request.seeds[0]
        fill(record, sampler.case(seed), replace(request.options, seed=seed), sampler)
    except Refused as refused:
        (failure,) = refused.args
    # Ctrl-C does not reach a worker: this KeyboardInterrupt is the function's own.
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        failure = diagnose(error, STEPS.get(record.stage, record.stage))
        if failure.kind == "out_of_memory":
            raise  # the pool gives up such a worker; what was measured has been told
    record.noise = record.noise or noise.finish(record.reading)
    announce("outputs")  # the last news
    return CellAnswer(failure, tuple(sampler.trees), sampler.not_kept)


def _make_inputs(
    value: Any, make: Callable[[Any, Any], Any] | None, seed: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    # A callable pytree (an equinox module) is data.
    is_maker = callable(value) and jax.tree_util.all_leaves([value])
    made: Any = value
    if make is not None or is_maker:
        key = jax.random.key(seed)
        made = make(key, value) if make is not None else value(key)
    # Like any other pytree, a named tuple is one input.
    return (made if type(made) is tuple else (made,)), {}


@dataclass
class TrialSampler:
    """Checks the shape of the result, and takes trials, each on fresh inputs. Keeps their outputs for the answer."""

    request: CellRequest
    shape: str = ""
    trees: list[Any] = field(default_factory=list[Any])
    """The outputs of each trial."""
    kept_bytes: int = 0
    not_kept: str = ""

    @property
    def examines(self) -> bool:
        return self.request.examines

    def case(self, seed: int) -> Case:
        """The case of a trial."""
        request = self.request
        inputs = partial(_make_inputs, request.value, request.make, seed)
        return replace(make_case(request.fn, name=request.function), inputs=inputs)

    def check(self, record: Record, subject: Subject) -> None:
        """Raises `Refused`. An output that cannot be right is not worth timing."""
        record.absent.append(NO_NUMERICS)
        request, shape = self.request, trees.shape_text(trees.take_apart(subject.returned))
        self.shape, why = shape, ""
        if request.check is not None:
            record.enter("check")
            try:
                verdict = request.check(*reveal((subject.returned, *subject.inputs.args)))
                is_fine = verdict is None or bool(verdict)
                why = verdict if isinstance(verdict, str) else "" if is_fine else f"{shape}, which the check refused"
            except Exception as error:
                broken = diagnose(error, "check")
                raise Refused(replace(broken, message=f"the check raised {broken.message}")) from error
        elif request.expected and shape != request.expected:
            why = f"{shape} where {request.expected_from} gave {request.expected}"
        if why:
            raise Refused(Failure("wrong_shape", "check", why))

    def warm_up(self, record: Record, subject: Subject) -> None:
        """The first run was enough: what takes seconds is not called more often."""

    def sample(self, record: Record, subject: Subject) -> None:
        """One trial after the other; every step of each has the whole budget of a call."""
        timer, long_s = self.request.options.timer, ()
        calls = replace(NO_WARMUP, least_s=record.stages.first_run_s or 0.0, timed=1)
        if timer == "auto":  # the first call alone must not decide which timers there are
            subject, again_s, long_s = self._call(record, subject)
            calls = replace(calls, least_s=min(calls.least_s or again_s, again_s), timed=2)
            calls = call_again(subject.ready, calls, timers.AUTO_LIMIT_S)
        names, left_out = timers.choose(timer, calls.least_s, calls.timed)
        record.absent += left_out
        for i, seed in enumerate(self.request.seeds):
            if i:
                record.enter("inputs")
                inputs = make_inputs(self.case(seed), seed)
                subject, _, long_s = self._call(record, replace(subject, inputs=inputs))
            for name in names:
                self._read(record, subject, name, long_s)
            record.enter("outputs")
            self._keep(subject.returned)
        record.samples = list(join_trials(record.samples))

    def _call(self, record: Record, subject: Subject) -> tuple[Subject, float, tuple[float, ...]]:
        """The subject with the outputs of one call; its seconds; and these again, if a call is so long that it is a
        reading by `wall`."""
        record.enter("run")
        ready = subject.ready()
        with watch_compiles() as log:
            result, elapsed_s = noise.timed(lambda: jax.block_until_ready(ready()))
        # A call that requested a program includes compilation, and a short one may have been preempted: no readings.
        shortest_s = min(each_s for each_s in (elapsed_s, record.stages.first_run_s, _shortest_s(record)) if each_s)
        is_reading = shortest_s >= LONG_CALL_S and not log.was_asked
        return replace(subject, outputs=ready.outcome(result)), elapsed_s, (elapsed_s,) * is_reading

    def _read(self, record: Record, subject: Subject, timer: str, long_s: tuple[float, ...]) -> None:
        """Adds the readings of this trial; none where the timer refuses, which it is asked once."""
        taken = sum(each.timer == timer for each in record.samples)
        what = f"samples.{timer}" + (f", from trial {taken} on" if taken else "")
        if any(absent.what.startswith(f"samples.{timer}") for absent in record.absent):
            return
        record.enter("run" if timer == "wall" else timer)
        with record.recording_absence(what), watch_compiles() as log:
            record.samples.append(read_trial(timer, subject, self.request.options, _shortest_s(record), long_s))
            # A timer with a preparation step compiles its programs there.
            record.compiles += log.compiles if timer == "wall" else 0

    def _keep(self, outputs: Any) -> None:
        """Keeps the outputs of one trial; drops all outputs once they exceed the limit."""
        description, limit_bytes = trees.take_apart(outputs), self.request.output_limit_bytes
        self.kept_bytes += trees.size_bytes(description)
        if self.kept_bytes > limit_bytes:
            self.not_kept = f"they take more than the {size(limit_bytes)} that this grid has left for outputs"
            self.trees = []
        if not self.not_kept:
            self.trees.append(trees.on_host(description))


def _shortest_s(record: Record) -> float:
    """The shortest call that `wall` has read; 0 without one."""
    return min((min(each.per_call_s) for each in record.samples if each.timer == "wall"), default=0.0)


# ---- trials -----------------------------------------------------------------------------------------------------


def read_trial(
    timer: str, subject: Subject, options: Options, call_s: float, long_s: tuple[float, ...] = ()
) -> Samples:
    """The readings of one trial, per call and net of the timer's own cost.

    Args:
        call_s: the shortest observed call of the function itself; 0 if there was no call.
        long_s: the seconds of a call of this trial that counts as a reading by `wall`.

    Raises:
        NotMeasured: the timer does not work for this function, or its readings are implausible.
    """
    if timer == "wall":
        prepared, calls = wall.prepare_alone(subject), 1
        options = replace(options, max_time_s=SPAN_S, min_time_s=SPAN_S, max_samples=MOST_CALLS)
    else:
        prepared, calls, long_s = timers.TIMERS[timer].prepare(subject), None, ()
        options = replace(options, max_time_s=TRIAL_S, min_time_s=min(options.min_time_s, TRIAL_S))
    samples = collect(timer, prepared, options, lambda share: None, call_s=call_s, calls=calls, taken_s=long_s)
    return reject_implausible(replace(samples, answers=timers.TIMERS[timer].answers), call_s)


def join_trials(trials: Iterable[Samples]) -> tuple[Samples, ...]:
    """Returns one for each timer, in the order of their first trials. If trials differ in the number of calls in a
    reading, all count as readings of the smallest number."""
    return tuple(_join(found) for found in group_by(trials, lambda samples: samples.timer).values())


def _join(trials: list[Samples]) -> Samples:
    # Not 1: the clock's step is compared with the length of a reading, and a reading of many calls is that much longer.
    iterations = min(trial.iterations for trial in trials)
    return replace(
        trials[0],
        iterations=iterations,
        elapsed_s=tuple(s * iterations for trial in trials for s in trial.per_call_s),
        disturbed=None,
        overhead_s=None,
        stop=None,
        trials=tuple(len(trial.elapsed_s) for trial in trials),
    )
