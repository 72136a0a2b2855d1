"""What can be found out of a function without a call: its source, whether it traces, what the compiler makes of it.

Both kinds of evidence of a function (`live_evidence.py`, `read_evidence.py`) begin here. They say how its inputs are
made, and what may be called and timed; nothing that stands here is said again there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import jax

from benchax.auditing.fed_back import NOTHING_CARRIED, Carried
from benchax.auditing.rule import NotApplicable, refuse_failed
from benchax.auditing.syntax import Source, source_of
from benchax.case import Case
from benchax.errors import BenchaxError, NotAvailable
from benchax.experiments.functions import plain
from benchax.inspecting.inspect import inspect_prepared
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import program_of
from benchax.model import Failure
from benchax.results.audit import Where
from benchax.results.inspection import Inspection

T = TypeVar("T")


class CompiledEvidence(ABC):
    """The parts of `Evidence` for which a function is traced and compiled, and not called."""

    is_timed = True
    """Is it built from nothing, so that its times to build are those of a new function?"""

    def __init__(
        self,
        case: Case,
        *,
        seed: int = 0,
        timeout_s: float | None = None,
        held_arguments: frozenset[int | str] = frozenset(),
        repeated_inputs: frozenset[int] = frozenset(),
        carried: Carried = NOTHING_CARRIED,
        wide_lines: Mapping[str, tuple[str, ...]] | None = None,
        called_at: str = "",
        data: Sequence[Any] = (),
        input_names: Sequence[str] = (),
        nan_at: int | None = None,
        compile_s: float | None = None,
    ) -> None:
        # Compiled is how a function is meant to run; `eager_case` is the other way.
        self.case = replace(case, jit=True, id=replace(case.id, variant=""))
        self.seed, self.timeout_s = seed, timeout_s
        self.held_arguments, self.repeated_inputs = held_arguments, repeated_inputs
        self.wide_lines = wide_lines or {}
        self.called_at, self.carried, self.compile_s = called_at, carried, compile_s
        self._data, self.input_names, self._nan_at = data, input_names, nan_at
        self.tell: Callable[[str], None] = lambda doing: None
        self.error: Exception | None = None
        self._parts: dict[str, Any] = {}

    @property
    @abstractmethod
    def is_jitted(self) -> bool: ...

    @abstractmethod
    def _make_inputs(self) -> Inputs:
        """Makes those of `case`, once."""

    @abstractmethod
    def _refuse_tracing(self) -> None:
        """Raises `NotMeasured` where it must not even be traced in this process."""

    @property
    def closed_jaxpr(self) -> Any:
        return self.prepared.built.reach_trace().jaxpr

    @property
    def data(self) -> Sequence[Any]:
        # A random key is kept as it is, and may have been donated.
        return [None if isinstance(one, jax.Array) and one.is_deleted() else one for one in self._data]

    @property
    def nan_at(self) -> int | None:
        return self._nan_at

    @property
    def fn(self) -> Callable[..., Any]:
        return self.case.fn

    @property
    def plain_case(self) -> Case:
        return self._once("plain_case", self._plain)

    @property
    def source(self) -> Source | None:
        return self._once("source", lambda: source_of(self.fn))

    @property
    def def_where(self) -> Where | None:
        return (self.source.file, self.source.def_line) if self.source else None

    @property
    def devices(self) -> list[Any]:
        return jax.devices()

    @property
    def platform(self) -> str:
        return jax.default_backend()

    @property
    def failure(self) -> Failure | None:
        return self._once("failure", self._failure)

    @property
    def inspection(self) -> Inspection:
        self._check_compiles()
        return self._once("inspection", lambda: inspect_prepared(self.case, self._prepared))

    @property
    def prepared(self) -> Prepared:
        self._check_compiles()
        return self._prepared

    @property
    def _prepared(self) -> Prepared:
        return self._once("prepared", self._prepare)

    def _prepare(self) -> Prepared:
        inputs = self._make_inputs()
        return Prepared(program_of(self.case, inputs), inputs, forgets=self.is_timed)

    def _check_compiles(self) -> None:
        """Raises `NotApplicable` for what does not trace or compile."""
        refuse_failed(self.failure)

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

    def _has(self, part: str) -> bool:
        """Was this part asked for, and could be had?"""
        return part in self._parts and not isinstance(self._parts[part], BenchaxError)

    @property
    def _inputs(self) -> Inputs:
        return self._prepared.inputs

    def _without_jit(self) -> Case:
        case = self.plain_case if self.is_jitted else self.case  # without tracing it, which may be in vain
        return replace(case, jit=False, donate=(), id=replace(case.id, variant="eager"))

    def _plain(self) -> Case:
        if self.is_jitted:
            self._check_compiles()
        try:
            return plain(self.case, self.seed)
        except NotAvailable as error:
            raise NotApplicable(error.problem) from error

    def _failure(self) -> Failure | None:
        self._refuse_tracing()
        prepared = self._prepared
        self.tell("tracing and compiling")
        try:
            self._once("inspection", lambda: inspect_prepared(self.case, prepared))
        except BenchaxError as error:
            # `inspect` says it in its own words; the rules explain what XLA or the user's function raised.
            return self._fail(error.__cause__ or error, "trace" if prepared.step == "trace" else "compile")
        return None

    def _fail(self, error: BaseException, stage: str) -> Failure:
        self.error = error if isinstance(error, Exception) else None
        return diagnose(error, stage)
