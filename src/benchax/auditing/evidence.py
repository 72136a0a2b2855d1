"""Evidence: what rules look at. Each part is worked out when the first rule asks for it, and once.

A part that cannot be had raises: `NotApplicable` where it makes no sense for what is audited (a program has no jaxpr),
`NotMeasured` where it could have been. The audit turns both into a line; a rule need not catch them.

With a limit of time nothing of the function is called here before it was tried in a worker process (`trial.py`); what
does not end or crashes there is not measured here, for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

import jax

from benchax.api import run
from benchax.auditing.base import NotApplicable
from benchax.auditing.syntax import Source, source_of
from benchax.auditing.trial import BEFORE_TRACING, BUILDING, TrialCall, Way, try_case
from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError, NotAvailable, NotMeasured
from benchax.experiments.functions import plain
from benchax.experiments.pair_timing import Pair, time_pairs
from benchax.inspecting.inspect import inspect_case
from benchax.measuring import program as programs
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.program import program_of
from benchax.model import Comparison, Failure, Measurement
from benchax.options import resolve
from benchax.results.audit import Where
from benchax.results.cache import CacheUse
from benchax.results.inspection import Inspection
from benchax.results.transfers import Transfers
from benchax.results.watch import Watch
from benchax.watching.watch import watch

T = TypeVar("T")

SHORT: Mapping[str, Any] = {"store": "off", "max_time_s": 0.25, "max_warmup_s": 0.25, "stages": "all"}
"""Options of the measurements."""
COMPARING_S = 12.0
"""A comparison begins no process after this long. It takes two processes to compare and two to confirm."""
RESERVED_SHARE = 0.25
"""In the last quarter of the time none is begun, so that the audit ends about when its time does."""
WATCHED_CALLS = 3


@dataclass(frozen=True)
class ProgramEvidence:
    """What was seen of a program that ran, by `auditing/program.py`."""

    command: str
    watch: Watch
    transfers: Transfers | None = None
    cache: CacheUse | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Whatever else was noted, in plain types."""


class Evidence:
    """Of one function with its inputs, or of a program.

    Args:
        case: the function; None: a program is audited.
        program: what was seen of it; None: a function is audited.
        max_time_s: comparisons are begun only in its first three quarters.
        timeout_s: limit of each stage in other processes, where the function is tried first; None: no limit, no trial.
    """

    def __init__(
        self,
        case: Case | None = None,
        program: ProgramEvidence | None = None,
        *,
        max_time_s: float = 60.0,
        seed: int = 0,
        timeout_s: float | None = None,
    ) -> None:
        # Compiled is how a function is meant to run; `eager_case` is the other way.
        self._case = None if case is None else replace(case, jit=True, id=replace(case.id, variant=""))
        self._program = program
        self.max_time_s, self.seed, self.timeout_s = max_time_s, seed, timeout_s
        self.tell: Callable[[str], None] = lambda doing: None
        """Told in words what takes time."""
        self._begun = perf_counter()
        self._parts: dict[str, Any] = {}
        self._comparisons: list[tuple[Pair, Comparison]] = []
        self.error: Exception | None = None
        """What tracing or compiling raised; known after `failure` was asked for."""

    # What is audited

    @property
    def is_program(self) -> bool:
        return self._program is not None

    @property
    def program(self) -> ProgramEvidence:
        if self._program is None:
            raise NotApplicable("one function is audited, not a program")
        return self._program

    @property
    def case(self) -> Case:
        """The function and its inputs; `jit` is True."""
        if self._case is None:
            raise NotApplicable("a program is audited, not one function with its inputs")
        return self._case

    @property
    def fn(self) -> Callable[..., Any]:
        """As it was given: plain or jitted."""
        return self.case.fn

    @property
    def is_jitted(self) -> bool:
        """Is it jitted as it was given?"""
        return program_of(self.case).was_jitted

    @property
    def why_not_called(self) -> str:
        """Why it may be looked at only; empty: it may be called."""
        return ""

    @property
    def plain_case(self) -> Case:
        """With the function under its jit, whose static and donated arguments are declared with the case then."""
        return self._once("plain_case", self._plain)

    @property
    def eager_case(self) -> Case:
        """The eager function, operation by operation."""
        self._pass("eager")
        return self._eager_case()

    @property
    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """(args, kwargs) as the caller gave them: NumPy arrays are NumPy arrays here, specs are texts."""
        if self._has_no_inputs:
            self._pass("compiled")
        return self.case.inputs()

    @property
    def inputs(self) -> Inputs:
        """The same on the device, data in place of specs. Only of what may be called, in any way that rules call it."""
        self._pass("compiled")
        error = self.trial("compiled").error
        if error is not None and error.stage in BUILDING and not self.is_jitted:
            self._pass("eager")  # the only way in which it runs
        return self._inputs

    @property
    def signature(self) -> str:
        """The inputs as specs; empty where making them does not end."""
        return "" if self._has_no_inputs else self._inputs.signature

    @property
    def source(self) -> Source | None:
        """Of the user's own function; None where there is none to read."""
        return self._once("source", lambda: source_of(self.fn))

    @property
    def def_where(self) -> Where | None:
        """The line of its `def`."""
        return (self.source.file, self.source.def_line) if self.source else None

    @property
    def devices(self) -> list[Any]:
        return jax.devices()

    @property
    def platform(self) -> str:
        return jax.default_backend()

    # Whether it may be called

    def trial(self, way: Way) -> TrialCall:
        """What came of calling it in a worker process; without a limit of time there is none, and no obstacle."""
        limit_s = self.timeout_s
        if limit_s is None:
            return TrialCall(way)
        case = self.case if way == "compiled" else self._eager_case()
        return self._once(f"{way} trial", lambda: try_case(case, self.seed, limit_s, self.tell))

    @property
    def trials(self) -> list[TrialCall]:
        """Those that were made."""
        return [part for part in self._parts.values() if isinstance(part, TrialCall)]

    # What is seen of it

    @property
    def failure(self) -> Failure | None:
        """Why it does not trace (`stage` "trace") or compile ("compile"); None: it does. `error` is the exception."""
        return self._once("failure", self._failure)

    @property
    def inspection(self) -> Inspection:
        """What the compiler makes of it."""
        if self.failure is not None:
            raise NotApplicable(f"it does not {self.failure.stage}: {self.failure.message}")
        return self._once("inspection", lambda: inspect_case(self.case))

    @property
    def measurement(self) -> Measurement:
        """A short one of the compiled function, with memory."""
        if self.failure is not None:
            raise NotApplicable(f"it does not {self.failure.stage}: {self.failure.message}")
        return self._once("measurement", lambda: self._measure(self.case, "compiled"))

    @property
    def eager(self) -> Measurement:
        """A short one of the eager function."""
        self._pass("eager")
        return self._once("eager", lambda: self._measure(self.eager_case, "eagerly"))

    @property
    def watch(self) -> Watch:
        """Of a program: its whole run. Of a function: a few calls as it was given, with new inputs of one shape."""
        if self._program is not None:
            return self._program.watch
        self._pass("compiled" if self.is_jitted else "eager")
        return self._once("watch", self._watch)

    def has(self, part: str) -> bool:
        """Was this part asked for, and could be had?"""
        return part in self._parts and not isinstance(self._parts[part], BenchaxError)

    # What is tried

    @property
    def compared(self) -> list[str]:
        """Names of the comparisons that were made."""
        return [duel.name for duel, _ in self._comparisons]

    @property
    def budget_s(self) -> float:
        """Seconds left for comparisons."""
        return max(0.0, self.max_time_s - (perf_counter() - self._begun))

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        """Run times of `variant` against `baseline` (default: the compiled function), in pairs, in fresh processes.

        A change is measured twice before it is called one. Takes 5 to 20 s, so ask only where it may matter; what
        another rule has asked before, word for word, is answered at once.

        Raises:
            NotMeasured: the time of the audit is used up, or a side fails.
        """
        duel = Pair(name, "as it is", baseline or self.case, name, variant)
        known = next((c for asked, c in self._comparisons if asked == duel), None)
        return known or self._compare(duel)

    # How

    def _once(self, name: str, make: Callable[[], T]) -> T:
        """Also an exception is the same each time."""
        if name not in self._parts:
            try:
                self._parts[name] = make()
            except BenchaxError as error:
                self._parts[name] = error
        if isinstance(self._parts[name], BenchaxError):
            raise self._parts[name]
        return self._parts[name]

    def _pass(self, way: Way) -> None:
        """Raises `NotMeasured` where it must not be called so in this process; what fails compiled, in no way."""
        for each in dict.fromkeys(("compiled", way)):
            if why := self.trial(each).why:
                raise NotMeasured(why)

    @property
    def _has_no_inputs(self) -> bool:
        obstacle = self.trial("compiled").obstacle
        return obstacle is not None and obstacle.stage in BEFORE_TRACING

    @property
    def _inputs(self) -> Inputs:
        return self._once("inputs", lambda: make_inputs(self.case, self.seed))

    def _eager_case(self) -> Case:
        case = self.plain_case if self.is_jitted else self.case  # without tracing it, which may be in vain
        return replace(case, jit=False, donate=(), id=replace(case.id, variant="eager"))

    def _plain(self) -> Case:
        if self.failure is not None and self.is_jitted:
            raise NotApplicable(f"it does not {self.failure.stage}: {self.failure.message}")
        try:
            return plain(self.case, self.seed)
        except NotAvailable as error:
            raise NotApplicable(error.problem) from error

    def _failure(self) -> Failure | None:
        self._pass("compiled")
        inputs = self._inputs
        program = program_of(self.case, inputs)
        self.tell("tracing and compiling")
        try:
            programs.trace(program, inputs.args, inputs.kwargs)
        except NotMeasured:  # a wrapper without a stage of its own for it
            pass
        except Exception as error:  # of the user's function: the evidence of a rule
            return self._fail(error, "trace")
        try:
            self._once("inspection", lambda: inspect_case(self.case))
        except BenchaxError as error:
            return self._fail(error.__cause__ or error, "compile")
        return None

    def _fail(self, error: BaseException, stage: str) -> Failure:
        self.error = error if isinstance(error, Exception) else None
        return diagnose(error, stage)

    def _measure(self, case: Case, what: str) -> Measurement:
        self.tell(f"measuring it {what}")
        (row,) = run([case], call={**SHORT, "seed": self.seed})
        if row.failure is not None:
            raise NotMeasured(f"it fails {what}, in {row.failure.stage}: {row.failure.message}")
        return row

    def _compare(self, duel: Pair) -> Comparison:
        name = duel.name
        if self.budget_s <= RESERVED_SHARE * self.max_time_s:
            raise NotMeasured(f"the {self.max_time_s:g} s of the audit were used up (--max-time)")
        self.tell(f"comparing with {name}")
        given = {"store": "off", "memory": False, "seed": self.seed, "timeout_s": self.timeout_s}
        options = resolve(given, project=self.case.folder)
        effort = Effort(looks=(2, 3), max_time_s=min(COMPARING_S, self.budget_s))
        found = time_pairs([duel], options, effort, lambda text: None)[name]
        if found.failure is not None:
            raise NotMeasured(f"the comparison with {name} failed: {found.failure.message}")
        self._comparisons.append((duel, found))
        return found

    def _watch(self) -> Watch:
        self.tell("calling it")
        calls = [self._inputs.renewed() for _ in range(WATCHED_CALLS)]
        with watch() as seen:
            for args, kwargs in calls:
                try:
                    jax.block_until_ready(self.fn(*args, **kwargs))
                except Exception as error:
                    raise NotMeasured(f"calling it fails: {diagnose(error, 'call').message}") from error
        return seen
