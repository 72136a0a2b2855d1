"""One cell of a grid, in the worker: inputs → trace, lower, compile → first run → check → trials.

Each step is announced before it begins (`say`), so that the parent can stop the one that takes too long and name it,
and what was measured so far travels with the announcements: a cell that is killed in its third trial keeps two.
What the user's function raises becomes the answer's failure.

How one trial is read says a timer: one function here and one line in TIMERS. `wall` is the latency that a caller sees:
one call and the wait for all its outputs, again and again until about 1 ms is spent or 50 calls are made, once at
least. Nothing but the call and the wait is inside a reading; fresh buffers for a function that donates its inputs are
made before it.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from benchax.case import Case, make_case
from benchax.codec import Json
from benchax.environment import capture
from benchax.errors import UsageError, one_of
from benchax.executors.task import Say, task
from benchax.grids import trees
from benchax.grids.plan import DataPoint
from benchax.measuring import stages
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.program import program_of
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Environment, Failure
from benchax.units import size
from benchax.watching.compiles import watch_compiles

LONG_CALL_NS = 10_000_000
"""A call as long as this is a reading without a warm call before it: what warmth gains is below its noise."""

Check = Callable[..., Any]

SPAN_NS = 1_000_000
MOST_CALLS = 50

Trial = Callable[[Subject], list[int]]
"""Nanoseconds of each call of one trial, in the order taken."""


@dataclass(frozen=True)
class CellRequest:
    """All that a worker needs to know about a cell."""

    function: str
    fn: Callable[..., Any]
    point: DataPoint
    seeds: tuple[int, ...]
    """One per trial."""
    timer: str = "wall"
    check: Check | None = None
    """Of the output and the inputs; where there is none, the output must have the shape of `expected`."""
    expected: str = ""
    """A shape text; empty where there is nothing to agree with yet."""
    expected_from: str = ""
    """The function whose shape that is."""
    output_limit_bytes: int = 2**30


@dataclass
class CellRecord:
    """What is known so far: told on the way, and again in the answer."""

    say: Say
    limit_bytes: int
    stage: str = "inputs"
    told: dict[str, Any] = field(default_factory=dict)
    arrays: list[np.ndarray] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    kept_bytes: int = 0
    not_kept: str = ""

    def enter(self, stage: str, **facts: Any) -> None:
        """Announces a step. Its budget begins anew each time: every call has the whole of it."""
        self.stage = stage
        self.say(stage, again=True, **facts)

    def keep(self, outputs: Any) -> None:
        """The outputs of one trial, for the answer; all of them are let go once they are more than the limit."""
        description, leaves = trees.taken_apart(outputs)
        self.kept_bytes += trees.size_bytes(leaves)
        if self.kept_bytes > self.limit_bytes:
            self.not_kept = f"they take more than the {size(self.limit_bytes)} that this grid has left for outputs"
            self.outputs, self.arrays = [], []
        if self.not_kept:
            return
        self.outputs.append({"tree": description, "first": len(self.arrays), "count": len(leaves)})
        self.arrays += trees.on_host(leaves)


class WrongShape(Exception):
    """An output is not of the shape that was asked for."""


@task
def capture_environment(argument: None, say: Say) -> Environment:
    """Where cells run, seen from a worker."""
    say("environment")
    return capture()


@task
def measure_cell(request: CellRequest, say: Say) -> tuple[Json, tuple[np.ndarray, ...]]:
    """(document, leaves of the outputs of all trials).

    The document holds `signature`, `stages`, `absent`, `trials` (nanoseconds of each call, per trial), `shape`,
    `failure` (None if all went well), `outputs` and `not_kept`.
    """
    record, failure = CellRecord(say, request.output_limit_bytes), None
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            _measure(request, record)
    except WrongShape as error:
        failure = Failure("wrong_shape", "check", str(error))
    # Ctrl-C does not reach a worker: this KeyboardInterrupt is the function's own.
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        failure = diagnose(error, record.stage)
        if failure.kind == "out_of_memory":
            raise  # the pool gives up such a worker; what was measured has been told
    document = record.told | {
        "failure": dataclasses.asdict(failure) if failure else None,
        "outputs": record.outputs,
        "not_kept": record.not_kept,
    }
    return Json(document), tuple(record.arrays)


def _measure(request: CellRequest, record: CellRecord) -> None:
    record.enter("inputs")
    case = make_case(request.fn, name=request.function)
    inputs = _inputs(request, case, request.seeds[0])
    record.told["signature"] = inputs.signature
    program = program_of(case, inputs)
    built = stages.build(program, inputs, record.enter)
    facts = {"trace_s": built.seconds.get("trace"), "lower_s": built.seconds.get("lower")}
    facts |= {"compile_s": built.seconds.get("compile"), "cache": built.cache}
    facts |= {"cold": "function" if built.seconds else None}
    absent = [dataclasses.asdict(a) for a in built.absent]
    record.told |= {"stages": facts, "absent": absent}
    record.enter("run", **record.told)
    subject = Subject(program, inputs, None, built.static, built.donates)
    subject = _first_run(subject, facts, absent)
    _check(request, record, subject)
    _trials(request, record, subject, case)


def _first_run(subject: Subject, facts: dict[str, Any], absent: list[dict[str, str]]) -> Subject:
    ready = subject.ready()
    with watch_compiles() as log:
        result, first_run_s = stages.first_run(ready)
    if log.compiles:
        why = f"the first call compiled {log.compiles} program{'s' * (log.compiles > 1)} itself"
        absent.append(dataclasses.asdict(Absent("stages.first_run_s", why)))
    else:
        facts["first_run_s"] = first_run_s
    return replace(subject, outputs=ready.outcome(result))


def _check(request: CellRequest, record: CellRecord, subject: Subject) -> None:
    """Raises `WrongShape`. What cannot be the answer is not worth timing."""
    shape = trees.shape_text(*trees.taken_apart(subject.returned))
    record.told["shape"] = shape
    record.enter("check", **record.told)
    if request.check is None:
        if request.expected and shape != request.expected:
            raise WrongShape(f"{shape} where {request.expected_from} gave {request.expected}")
        return
    verdict = request.check(subject.returned, *subject.inputs.args)
    if isinstance(verdict, str) and verdict:
        raise WrongShape(verdict)
    if verdict is not None and not isinstance(verdict, str) and not bool(verdict):
        raise WrongShape(f"{shape}, which the check refused")


def _trials(request: CellRequest, record: CellRecord, subject: Subject, case: Case) -> None:
    """One trial after the other, each on fresh inputs; every step of each has the whole budget of a call."""
    record.told["trials"] = trials = []
    signature = subject.inputs.signature
    for i, seed in enumerate(request.seeds):
        reading: list[int] = []
        if i:
            record.enter("inputs")
            subject = replace(subject, inputs=_inputs(request, case, seed))
            record.enter("run")
            subject, ns = _one_call(subject)
            is_warm = subject.inputs.signature == signature
            reading = [ns] if request.timer == "wall" and ns >= LONG_CALL_NS and is_warm else []
        if not reading:
            record.enter("run")
            reading = TIMERS[request.timer](subject)
        trials.append(reading)
        record.enter("outputs", trial=reading)
        record.keep(subject.returned)


def _one_call(subject: Subject) -> tuple[Subject, int]:
    """(with the outputs of one call, its nanoseconds)"""
    ready, wait = subject.ready(), jax.block_until_ready
    start = perf_counter_ns()
    result = wait(ready())
    ns = perf_counter_ns() - start
    return replace(subject, outputs=ready.outcome(result)), ns


def _inputs(request: CellRequest, case: Case, seed: int) -> Inputs:
    def factory() -> tuple[tuple[Any, ...], dict[str, Any]]:
        made = _make_inputs(request.point, seed)
        # Named tuples are one input, as any other pytree is.
        return (made if type(made) is tuple else (made,)), {}

    return make_inputs(replace(case, inputs=factory), seed)


def _make_inputs(point: DataPoint, seed: int) -> Any:
    if point.make is not None:
        return point.make(jax.random.key(seed), point.value)
    # A callable pytree (an equinox module) is data.
    if callable(point.value) and jax.tree_util.all_leaves([point.value]):
        return point.value(jax.random.key(seed))
    return point.value


def wall(subject: Subject) -> list[int]:
    wait = jax.block_until_ready
    readings: list[int] = []
    spent = 0
    while not readings or (spent < SPAN_NS and len(readings) < MOST_CALLS):
        call = subject.ready()
        start = perf_counter_ns()
        wait(call())
        readings.append(perf_counter_ns() - start)
        spent += readings[-1]
    return readings


TIMERS: dict[str, Trial] = {"wall": wall}
ANSWERS = {"wall": "latency a caller sees"}


def check_timer(timer: str) -> str:
    """`timer`, if there is one of that name.

    Raises:
        UsageError: there is none; lists those that are.
    """
    if timer not in TIMERS:
        raise UsageError(f"unknown timer {timer!r} for a grid", one_of(TIMERS, str(timer)))
    return timer
