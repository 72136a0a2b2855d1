"""Evidence: the facts that rules look at. Each part is computed once, when the first rule asks for it.

`Evidence` is about one function with its inputs. Its `can` limits the rules: "call" the function, which
measures and compares it; "compile" it; or only "trace" it. Functions of a program that has ended are never called.
`ProgramEvidence` is about a program that ran: its log, its compilations, its transfers.

A missing part raises an exception. `NotApplicable`: it makes no sense for this function (one that does not trace has no
jaxpr). `NotMeasured`: it could not be taken. The audit turns both into a line; a rule need not catch them.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import Any, Literal, TypeVar, cast
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.recorder.functions import RecordedFunction
from benchax.auditing.recorder.log import CallLine, FunctionUse, Log, call_lines
from benchax.auditing.syntax import Source, source_of
from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError, NotAvailable, NotMeasured
from benchax.experiments.functions import plain
from benchax.experiments.lab import Pair, WorkerLab
from benchax.inspecting.inspect import abstract_inputs, inspect_prepared
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.engine import measure
from benchax.measuring.inputs import Inputs, make_inputs, without_static
from benchax.measuring.jax_settings import without_cache
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.program import program_of, program_that_ran
from benchax.model import Comparison, Failure, Measurement, Remark
from benchax.options import resolve
from benchax.program.index import TracedProgram, index
from benchax.results.audit import Where
from benchax.results.inspection import Inspection
from benchax.results.watch import CacheUse, Direction, Transfers, Watch
from benchax.static_leaves import reveal
from benchax.watching.watch import watch
from benchax.workers.pool import shared_pool
from benchax.workers.task import Say, limit_stages

# ---- the trial in a worker process ----------------------------------------------------------------------------------
#
# Calls a function once in a worker process before an audit calls it here. If it never ends, or kills its process, it
# does so there.
#
# There are two ways of calling it, each tried when the first rule needs it: compiled, which traces, lowers, compiles
# and runs it, and eagerly. Each stage has the limit. A Python exception is no obstacle: it is raised here again, where
# rules explain it.
#
# The worker is new, and ends afterwards: a waiting worker would hold memory of an accelerator that this process needs.
# It leaves JAX's persistent cache unchanged, because rules report on that cache.

TIMEOUT_S = 300.0
"""The default limit of a stage. We chose how long to wait; no measurement gives it."""
BEFORE_TRACING = ("start", "inputs")
BUILDING = ("trace", "lower", "compile")

Way = Literal["compiled", "eager"]
HOW: dict[Way, str] = {"compiled": "compiled", "eager": "eagerly"}


@dataclass(frozen=True)
class TrialCall:
    """The result of calling it in a worker."""

    way: Way
    obstacle: Failure | None = None
    """Why it must not be called here: it did not end in time, or took its process with it."""
    error: Failure | None = None
    """The Python exception that it raised."""
    untried: str = ""
    """Why it could not be called there."""

    @property
    def why(self) -> str:
        """Completes "not measured, because …" if there is an obstacle."""
        if self.obstacle is None:
            return ""
        raised = "it raised " if self.obstacle.kind == "error" else ""
        return f"it was tried {HOW[self.way]} in a worker process, and {raised}{self.obstacle.message}"

    @property
    def is_unbuilt(self) -> bool:
        """Was there nothing to run, since it does not trace or compile?"""
        return self.error is not None and self.error.stage in BUILDING

    @property
    def advice(self) -> str:
        """Advice against the obstacle; empty if there is no advice."""
        if self.obstacle is not None and self.obstacle.kind == "timeout":
            return "Allow more time (--timeout, timeout_s=), or give it smaller inputs."
        return self.obstacle.advice if self.obstacle else ""


def _way(case: Case) -> Way:
    return "compiled" if case.jit else "eager"


def try_case(case: Case, seed: int, limit_s: float, tell: Callable[[str], None]) -> TrialCall:
    """Calls it once, compiled or, if the case is not to be jitted, eagerly; no stage takes longer than `limit_s`."""
    way = _way(case)
    doing = f"trying it {HOW[way]} in a worker process"
    tell(doing)
    found: TrialCall | Failure = shared_pool(warm=False).call(
        call_once,
        (case, seed),
        limit_stages(limit_s),
        name=f"case {case.id.label!r}",
        shows_output=False,  # it will say the same in this process
        on_message=lambda message: tell(f"{doing}: {message['stage']}"),
    )
    if not isinstance(found, Failure):
        return found
    if found.stage == "start" and found.kind != "timeout":  # it was not reached
        return TrialCall(way, untried=found.message)
    return TrialCall(way, found)


def call_once(argument: tuple[Case, int], say: Say) -> TrialCall:
    """A `BaseException` that is not an `Exception`, such as a `SystemExit`, ends the job, as it would end the audit."""
    case, seed = argument
    way, stage = _way(case), "inputs"

    def enter(name: str) -> None:
        nonlocal stage
        stage = name if case.jit or name != "first run" else "eager call"
        say(stage)

    try:
        # Otherwise the audit would find, and report, a program that this trial left in the user's persistent cache.
        with without_cache():
            prepare(case, seed, enter).call_first()
            jax.effects_barrier()  # callbacks that nothing waits for
    except Exception as error:
        failure = diagnose(error, stage)
        if stage == "inputs":  # as where an accelerator has no room for two processes
            return TrialCall(way, untried=f"its inputs cannot be made there: {failure.message}")
        return TrialCall(way, error=failure)
    return TrialCall(way)


# ---- the evidence ---------------------------------------------------------------------------------------------------

Can = Literal["call", "compile", "trace"]
T = TypeVar("T")


def once(make: Callable[[Any], T]) -> cached_property[T]:
    """A property that is made once. An exception is the same each time, too."""
    return cast(
        "cached_property[T]", property(lambda self: self._find(make.__name__, lambda: make(self)), doc=make.__doc__)
    )


SHORT: Mapping[str, Any] = {"store": "off", "max_time_s": 0.25, "max_warmup_s": 0.25, "stages": "all"}
"""Options of the measurements."""
COMPARING_S = 20.0
"""A comparison starts no process after this. It takes two processes to compare and two to confirm, of 3 s each on a
busy machine, and some room."""
LARGE_EFFECT = 2.0
"""This much faster or slower, and yet unclear: then the comparison goes on."""
LONGER_S = 2 * COMPARING_S
"""How long it then goes on."""
RESERVED_SHARE = 0.25
"""No comparison starts in the last quarter of the time, so that the audit ends about when its time does."""
WATCHED_CALLS = 3
"""The first call compiles, the second can compile again for results of the first, and the third shows whether that goes
on."""
UNUSED = FunctionUse()
NOT_CALLED = "not-called"
"""Code of the remark that a trial failed, so that the function must not be called here."""
NOT_BUILT = "not-built"
"""Code of the remark that the function does not trace or compile."""
NEVER_CALLED = "functions of a program are read when it has ended, not called"
ONLY_TRACED = "only the trace of this function is kept; it was not compiled again"
_DONE = {
    "measurement": "measured compiled",
    "eager": "measured eagerly",
    "watch": "called a few times as it is",
}


class NotApplicable(BenchaxError):
    """A rule cannot apply; `problem` completes the sentence "not applicable, because …"."""


def refuse_failed(failure: Failure | None) -> None:
    """Raises `NotApplicable` for a function that does not trace or compile: there is nothing to look at."""
    if failure is not None:
        raise NotApplicable(f"it does not {failure.stage}: {failure.message}")


@dataclass(frozen=True)
class ProgramEvidence:
    """A record of a program that ran. Rules ask in its own process, when it has ended."""

    watch: Watch
    """Its compilations, in the whole run."""
    log: Log = field(default_factory=Log)
    transfers: Transfers | None = None
    cache: CacheUse | None = None
    sees_methods: bool = True
    """Are waits by methods of arrays seen in this JAX?"""

    def seen_transfers(self, direction: Direction) -> Transfers:
        """Returns the transfers that were seen while calls were watched.

        Raises:
            NotMeasured: this direction was not seen.
        """
        if self.transfers is None or direction not in self.transfers.sees:
            raise NotMeasured("calls and transfers cannot be seen in this JAX")
        return self.transfers

    @cached_property
    def lines(self) -> list[CallLine]:
        """Calls of jitted functions by line.

        Raises:
            NotMeasured: calls cannot be seen in this JAX.
        """
        self.seen_transfers("host to device")
        return call_lines(self.log)

    @property
    def remarks(self) -> Sequence[Remark]:
        """Returns remarks on facts that were not seen, or not seen as usual."""
        return (*self.watch.remarks, *(self.transfers.remarks if self.transfers else ()))


class Evidence:
    """Everything that is known of one function with its inputs, or can be found out.

    With a limit of time the function is called in a worker process first (`try_case`). If it does not end there, or
    crashes, it is not called here.

    Args:
        max_time_s: comparisons start in its first three quarters only.
        timeout_s: limit of each stage in other processes; None: no limit, and no trial.
        recorded: what its program showed of it, for functions of a program.
        use: how its program uses it.
    """

    def __init__(
        self,
        case: Case,
        *,
        can: Can = "call",
        max_time_s: float = 60.0,
        seed: int = 0,
        timeout_s: float | None = None,
        recorded: RecordedFunction | None = None,
        use: FunctionUse = UNUSED,
    ) -> None:
        # A function is meant to run compiled; `eager_case` is the other way.
        self.case = replace(case, jit=True, id=replace(case.id, variant=""))
        self.can, self.max_time_s, self.seed, self.timeout_s = can, max_time_s, seed, timeout_s
        self.recorded, self.use = recorded, use
        self.tell: Callable[[str], None] = lambda doing: None
        """Takes in words what is being done. The audit sets it for each rule."""
        self.error: Exception | None = None
        """The error of tracing or compiling; known after `failure` was asked for."""
        self.process_s = 0.0
        """How long a process took to start, build the function, and call it once; 0 if that was not tried."""
        self._parts: dict[str, Any] = {}
        self._begun = perf_counter()
        self._longest_s = 0.0
        self._comparisons: list[tuple[Pair, Comparison]] = []

    # ---- the function

    @property
    def fn(self) -> Callable[..., Any]:
        """As it was given: plain or jitted."""
        return self.case.fn

    @property
    def is_jitted(self) -> bool:
        """Was it given jitted?"""
        return self.can != "call" or program_of(self.case).was_jitted

    @property
    def why_not_called(self) -> str:
        """Why it must not be called; empty if it may be."""
        return "" if self.can == "call" else NEVER_CALLED

    @once
    def plain_case(self) -> Case:
        """With the function under its jit; what that declares static or donated is declared with the case."""
        if self.is_jitted:
            self._check_compiles()
        try:
            return plain(self.case, self.seed)
        except NotAvailable as error:
            raise NotApplicable(error.problem) from error

    @property
    def eager_case(self) -> Case:
        """Without jit, operation by operation."""
        self._pass("eager")
        return self._without_jit()

    @once
    def source(self) -> Source | None:
        """The text of the user's own function; None if it cannot be read."""
        return source_of(self.recorded.call.own if self.recorded else self.fn)

    @property
    def def_where(self) -> Where | None:
        """The line of its `def`."""
        return (self.source.file, self.source.tree.lineno) if self.source else None

    # ---- its inputs

    @property
    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """(args, kwargs) as the caller gave them: NumPy arrays are NumPy arrays, specs are texts."""
        if self.can == "call" and self._has_no_inputs:
            self._pass("compiled")
        return self.case.inputs()

    @property
    def inputs(self) -> Inputs:
        """On the device, with data instead of specs; only shapes for a function that is not called."""
        self._pass("compiled")
        error = self.trial("compiled").error
        if error is not None and error.stage in BUILDING and not self.is_jitted:
            self._pass("eager")  # the only way in which it runs
        return self._prepared.inputs

    def fresh_inputs(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """(args, kwargs) in new buffers, for one call."""
        self._check_called()
        return self.inputs.renewed()

    @property
    def data(self) -> Sequence[Any]:
        """The jaxpr's inputs of one call, with their contents; empty if they were not kept, None for a single one."""
        if self.can == "call":
            made = self.inputs
            return jax.tree.leaves(without_static(made.args, made.kwargs, made.static))
        # A random key is kept as it is, and may have been donated.
        kept = self.recorded.inputs if self.recorded else ()
        return [None if isinstance(one, jax.Array) and one.is_deleted() else one for one in kept]

    @property
    def nan_at(self) -> int | None:
        """The first call that gave NaN, from 1; 0 if no call did, and None if no result was searched."""
        if self.can != "call":
            return self.recorded.nan_at if self.recorded else None
        args, kwargs = reveal(self.fresh_inputs())
        return int(any(map(is_nan, jax.tree.leaves(self.fn(*args, **kwargs)))))

    @property
    def signature(self) -> str:
        """The inputs as specs; empty if making them does not end."""
        if self.can == "trace":
            return ", ".join(aval.str_short(short_dtypes=True) for aval in self.closed_jaxpr.in_avals)
        return "" if self._has_no_inputs else self._prepared.inputs.signature

    # ---- what JAX and the compiler make of it

    @property
    def devices(self) -> list[Any]:
        return jax.devices()

    @property
    def platform(self) -> str:
        """The platform of JAX's default backend: cpu, gpu."""
        return jax.default_backend()

    @property
    def closed_jaxpr(self) -> Any:
        """The program as JAX traced it.

        Raises:
            NotMeasured: it could not be seen.
        """
        if self.recorded is not None and self.recorded.jaxpr is not None:
            return self.recorded.jaxpr
        if self.can == "trace":
            raise NotMeasured("its jaxpr could not be seen when it was compiled")
        return self._jaxpr

    @property
    def program(self) -> TracedProgram:
        """The index of that.

        Raises:
            NotMeasured: as `closed_jaxpr`.
        """
        return index(self.closed_jaxpr)

    @once
    def failure(self) -> Failure | None:
        """Why it does not trace (`stage` "trace") or compile ("compile"); None if it does."""
        if self.can == "trace":
            return None
        self._pass("compiled")
        prepared = self._prepared
        self.tell("tracing and compiling")
        try:
            self._find("inspection", lambda: inspect_prepared(self.case, prepared))
        except BenchaxError as error:
            # `inspect` says it in its own words; the rules explain what XLA or the user's function raised.
            cause = error.__cause__ or error
            self.error = cause if isinstance(cause, Exception) else None
            return diagnose(cause, "trace" if prepared.step == "trace" else "compile")
        return None

    @property
    def prepared(self) -> Prepared:
        """The compiled function, built once for all rules."""
        self._check_compiles()
        return self._prepared

    @property
    def inspection(self) -> Inspection:
        """Returns the compiled form of the function."""
        self._check_compiles()
        return self._find("inspection", lambda: inspect_prepared(self.case, self._prepared))

    def inspected(self, part: str) -> Any:
        """A part of `inspection`.

        Raises:
            NotMeasured: it is missing.
        """
        found = getattr(self.inspection, part)
        if found is None:
            raise NotMeasured(self.inspection.why_absent(part) or f"{part} of the compiled program cannot be read")
        return found

    # ---- what is measured

    @once
    def measurement(self) -> Measurement:
        """A short one of the compiled function, with memory."""
        self._check_called()
        self._check_compiles()
        self.tell("measuring it compiled")
        options = resolve({**SHORT, "seed": self.seed}, self.case.options, project=self.case.folder)
        return _check_row(measure(self.case, options, run_id=uuid4().hex, prepared=self.prepared), "compiled")

    @once
    def eager(self) -> Measurement:
        """A short one of the eager function."""
        from benchax.api import run  # noqa: PLC0415  # which imports audits

        self._check_called()
        self._pass("eager")
        self.tell("measuring it eagerly")
        (row,) = run([self.eager_case], call={**SHORT, "seed": self.seed})
        return _check_row(row, "eagerly")

    @once
    def watch(self) -> Watch:
        """A few calls of the function as it was given, with new inputs of one shape."""
        self._check_called()
        self._pass("compiled" if self.is_jitted else "eager")
        self.tell("calling it")
        # Each call gets a copy, because a function that donates consumes its arguments.
        calls = [reveal(self.inputs.renewed()) for _ in range(WATCHED_CALLS)]
        with watch() as seen:
            for args, kwargs in calls:
                try:
                    jax.block_until_ready(self.fn(*args, **kwargs))
                except Exception as error:
                    raise NotMeasured(f"calling it fails: {diagnose(error, 'call').message}") from error
        return seen

    @property
    def budget_s(self) -> float:
        """Seconds left for comparisons."""
        return self.max_time_s - (perf_counter() - self._begun)

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        """Run times of `variant` against `baseline` (default: the compiled function), in pairs, in new processes.

        A change is measured twice before it counts. This takes 5 to 20 s, so ask only if it may matter; the same
        question, word for word, is answered at once.

        Raises:
            NotMeasured: the time of the audit is used up, or a side fails.
        """
        self._check_called()
        pair = Pair(name, "as it is", baseline or self.case, name, variant)
        known = next((c for asked, c in self._comparisons if asked == pair), None)
        return known or self._compare(pair)

    def lab(self, effort: Effort | None = None, **settings: Any) -> WorkerLab:
        """Measures in other processes, as this evidence does: with its seed and its limit of time.

        Raises:
            NotMeasured: the function may not be called.
        """
        self._check_called()
        given = {"store": "off", "memory": False, "seed": self.seed, "timeout_s": self.timeout_s}
        return WorkerLab(resolve(given, project=self.case.folder), effort or Effort(), **settings)

    # ---- whether it may be called

    def trial(self, way: Way) -> TrialCall:
        """The result of calling it in a worker process. Without a limit of time there is no trial, and no obstacle."""
        limit_s = self.timeout_s
        if limit_s is None or self.can != "call":
            return TrialCall(way)
        return self._find(f"{way} trial", lambda: self._try(way, limit_s))

    @property
    def trials(self) -> list[TrialCall]:
        return [part for part in self._parts.values() if isinstance(part, TrialCall)]

    @property
    def remarks(self) -> Sequence[Remark]:
        """A sentence on whether the function was built and called."""
        return tuple(self._list_remarks()) if self.can == "call" else ()

    # ---- how

    def _find(self, name: str, make: Callable[[], T]) -> T:
        """An exception is the same each time, too."""
        if name not in self._parts:
            try:
                self._parts[name] = make()
            except BenchaxError as error:
                self._parts[name] = error
        if isinstance(self._parts[name], BenchaxError):
            raise self._parts[name]
        return self._parts[name]

    def _check_called(self) -> None:
        if self.can != "call":
            raise NotMeasured(NEVER_CALLED)

    def _check_compiles(self) -> None:
        if self.can == "trace":
            raise NotMeasured(ONLY_TRACED)
        refuse_failed(self.failure)

    def _pass(self, way: Way) -> None:
        """Raises `NotMeasured` if it must not be called so in this process; what fails compiled, in no way."""
        for each in dict.fromkeys(("compiled", way)):
            if why := self.trial(each).why:
                raise NotMeasured(why)

    @property
    def _has_no_inputs(self) -> bool:
        obstacle = self.trial("compiled").obstacle
        return obstacle is not None and obstacle.stage in BEFORE_TRACING

    @once
    def _prepared(self) -> Prepared:
        if self.can != "call":
            return Prepared(program_that_ran(self.case), abstract_inputs(self.case))
        inputs = make_inputs(self.case, self.seed)
        return Prepared(program_of(self.case, inputs), inputs)

    @once
    def _jaxpr(self) -> Any:
        obstacle = self.trial("compiled").obstacle
        # A function that ran too long or crashed in another process was traced there, so it can be traced here, too.
        if obstacle is not None and obstacle.stage in (*BEFORE_TRACING, *BUILDING):
            self._pass("compiled")
        # Compiling takes longer than tracing, and rules that read the trace alone do not need it.
        with contextlib.suppress(Exception), warnings.catch_warnings(action="ignore"):  # building it tells why
            return self._prepared.reach_trace().jaxpr
        return self.prepared.reach_trace().jaxpr

    def _without_jit(self) -> Case:
        case = self.plain_case if self.is_jitted else self.case  # without tracing it, which may be in vain
        return replace(case, jit=False, donate=(), id=replace(case.id, variant="eager"))

    def _try(self, way: Way, limit_s: float) -> TrialCall:
        begun = perf_counter()
        found = try_case(self.case if way == "compiled" else self._without_jit(), self.seed, limit_s, self.tell)
        self.process_s = max(self.process_s, perf_counter() - begun)
        return found

    def _compare(self, pair: Pair) -> Comparison:
        name = pair.name
        # A comparison always confirms a change, so one that starts late would end long after the time limit. Each
        # comparison takes about as long as the one before it, and the first as long as two processes.
        least_s = self._longest_s or 2 * self.process_s
        if self.budget_s <= max(RESERVED_SHARE * self.max_time_s, least_s):
            raise NotMeasured(f"the {self.max_time_s:g} s for comparisons were used up (--max-time)")
        self.tell(f"comparing with {name}")
        found = self._time(pair, Effort(looks=(2, 3), max_time_s=min(COMPARING_S, self.budget_s)))
        # Noise can hide even a large effect.
        if found.verdict == "unclear" and found.ratio and not 1 / LARGE_EFFECT < found.ratio < LARGE_EFFECT:
            self.tell(f"comparing with {name} for longer, because the effect is large")
            found = self._time(pair, Effort(looks=(4, 6, 8), max_time_s=min(LONGER_S, self.budget_s)))
        if found.failure is not None:
            raise NotMeasured(f"the comparison with {name} failed: {found.failure.message}")
        self._comparisons.append((pair, found))
        return found

    def _time(self, pair: Pair, effort: Effort) -> Comparison:
        begun = perf_counter()
        try:
            return self.lab(effort).time_pairs([pair])[pair.name]
        finally:
            self._longest_s = max(self._longest_s, perf_counter() - begun)

    def _list_remarks(self) -> Iterable[Remark]:
        trials = self.trials
        for trial in trials:
            yield from _of_trial(trial)
        if self.trial("compiled").obstacle is not None:
            return
        failure = self.failure if "failure" in self._parts else None
        if failure is not None:
            # Don't start an eager trial for this alone: it can take as long as the limit.
            fails_eagerly = self.is_jitted or any(trial.way == "eager" and trial.error for trial in trials)
            text = f"It does not {failure.stage}, so most rules could not run: "
            yield Remark(NOT_BUILT, "error" if fails_eagerly else "warning", f"{text}{failure.message}")
        ways = [trial.way for trial in trials if not trial.untried]
        compared = [pair.name for pair, _ in self._comparisons]
        there = {part for part, made in self._parts.items() if not isinstance(made, BenchaxError)}
        done = [
            *([f"tried in a worker process ({', '.join(ways)})"] if ways else []),
            "traced",
            *(["compiled"] if "failure" in self._parts and failure is None else []),
            *(text for part, text in _DONE.items() if part in there),
            *([f"compared in fresh processes ({', '.join(compared)})"] if compared else []),
        ]
        yield Remark("how", "info", f"To find this out, the function was {', '.join(done)}.")


def _check_row(row: Measurement, what: str) -> Measurement:
    """Raises `NotMeasured` for one that failed."""
    if row.failure is not None:
        raise NotMeasured(f"it fails {what}, in {row.failure.stage}: {row.failure.message}")
    return row


def _of_trial(trial: TrialCall) -> Iterable[Remark]:
    if trial.obstacle is not None:
        is_all = trial.way == "compiled"
        how, left = (
            ("", "Only rules that need no call ran") if is_all else (" eagerly", "Rules that need it did not run")
        )
        text = f"The function was not called{how} in this process: {trial.why}. {left}. {trial.advice}".strip()
        yield Remark(NOT_CALLED if is_all else "not-called-unjitted", "error" if is_all else "warning", text)
    elif trial.untried:
        how = HOW[trial.way]
        text = f"The function was called {how} in this process without a limit of time, because {trial.untried}."
        yield Remark("without-limit", "warning", text)


def is_nan(value: Any) -> bool:
    """Is one of its elements? False for what is no float."""
    dtype = getattr(value, "dtype", None) or np.result_type(type(value))
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) or not jnp.issubdtype(dtype, jnp.inexact):
        return False
    return bool(np.isnan(np.asarray(value)).any())
