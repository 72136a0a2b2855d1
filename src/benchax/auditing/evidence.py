"""Evidence: what rules look at, each part worked out when the first rule asks for it, and once.

Of one function with its inputs there are two implementations of `Evidence`: `live_evidence.py`, where it may be
called, and `read_evidence.py`, where it is only traced and compiled, after the program that it belongs to has ended.
Tests have a third. Of a program that ran there is `ProgramEvidence`, plain data.

A part that cannot be had raises: `NotApplicable` where it makes no sense for this function (one that does not trace has
no jaxpr), `NotMeasured` where it could have been. The audit turns both into a line; a rule need not catch them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from benchax.auditing.fed_back import Carried
from benchax.auditing.syntax import Source
from benchax.case import Case
from benchax.measuring.inputs import Inputs
from benchax.measuring.prepare import Prepared
from benchax.model import Comparison, Failure, Measurement, Remark
from benchax.results.audit import Where
from benchax.results.cache import CacheUse
from benchax.results.inspection import Inspection
from benchax.results.transfers import Transfers
from benchax.results.watch import Watch


@dataclass(frozen=True)
class ProgramEvidence:
    """What was seen of a program that ran, by `auditing/audited_program.py`."""

    command: str
    watch: Watch
    """Its whole run."""
    transfers: Transfers | None = None
    cache: CacheUse | None = None
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Whatever else was noted, in plain types."""

    @property
    def remarks(self) -> Sequence[Remark]:
        """What could not be seen, or not as usual."""
        return (*self.watch.remarks, *(self.transfers.remarks if self.transfers else ()))


class Evidence(Protocol):
    """What is known, and can be found out, of one function with its inputs."""

    tell: Callable[[str], None]
    """Told in words what takes time. The audit sets it for each rule."""

    @property
    def case(self) -> Case:
        """The function and its inputs; `jit` is True, for compiled is how a function is meant to run."""
        ...

    @property
    def seed(self) -> int:
        """The seed of the data made from specs."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """Limit of each stage in other processes; None: there is no limit."""
        ...

    @property
    def fn(self) -> Callable[..., Any]:
        """As it was given: plain or jitted."""
        ...

    @property
    def is_jitted(self) -> bool:
        """Is it jitted as it was given?"""
        ...

    @property
    def why_not_called(self) -> str:
        """Why it may be looked at only; empty: it may be called."""
        ...

    @property
    def plain_case(self) -> Case:
        """With the function under its jit, whose static and donated arguments are declared with the case then."""
        ...

    @property
    def held_arguments(self) -> frozenset[int | str]:
        """Those that its program still had when it called the function again; none where that was not seen."""
        ...

    @property
    def repeated_inputs(self) -> frozenset[int]:
        """Inputs of the jaxpr that were the same object at each call its program made; none where that was not seen."""
        ...

    @property
    def carried(self) -> Carried:
        """Its results that its program gave back to it at the next call; none where that was not seen."""
        ...

    @property
    def wide_lines(self) -> Mapping[str, tuple[str, ...]]:
        """Lines of its program that make float64 arrays without asking for them, by what they make: f64[256]."""
        ...

    @property
    def called_at(self) -> str:
        """file:line at which its program called it most often; empty where that was not seen."""
        ...

    @property
    def data(self) -> Sequence[Any]:
        """The inputs of the jaxpr, of one call: leaves with their contents; none where they were not kept, and None in
        place of one that was not."""
        ...

    @property
    def input_names(self) -> Sequence[str]:
        """Of the same leaves, as the program's own function calls them; none where that was not seen."""
        ...

    @property
    def compile_s(self) -> float | None:
        """Seconds that JAX spent in tracing, lowering and compiling it, in its program; None where that was not
        seen."""
        ...

    @property
    def nan_at(self) -> int | None:
        """The first of a few early calls, from 1 on, that gave NaN; 0 where none did, and None where no result was
        looked at."""
        ...

    @property
    def closed_jaxpr(self) -> Any:
        """The program as JAX traced it. Raises `NotMeasured` where it has no separate step of tracing."""
        ...

    @property
    def eager_case(self) -> Case:
        """The eager function, operation by operation."""
        ...

    @property
    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """(args, kwargs) as the caller gave them: NumPy arrays are NumPy arrays here, specs are texts."""
        ...

    @property
    def inputs(self) -> Inputs:
        """The same on the device, data in place of specs. Only of what may be called, in any way that rules call it."""
        ...

    def fresh_inputs(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """(args, kwargs) on fresh buffers, for one call. Raises `NotMeasured` where none may be made."""
        ...

    @property
    def source(self) -> Source | None:
        """The text of the user's own function; None where there is none to read."""
        ...

    @property
    def def_where(self) -> Where | None:
        """The line of its `def`."""
        ...

    @property
    def devices(self) -> list[Any]:
        """All that JAX has here."""
        ...

    @property
    def platform(self) -> str:
        """The platform of JAX's default backend: cpu, gpu."""
        ...

    @property
    def failure(self) -> Failure | None:
        """Why it does not trace (`stage` "trace") or compile ("compile"); None: it does. `error` is the exception."""
        ...

    @property
    def error(self) -> Exception | None:
        """What tracing or compiling raised; known after `failure` was asked for."""
        ...

    @property
    def prepared(self) -> Prepared:
        """The compiled function, built: once, for all that is asked of it."""
        ...

    @property
    def inspection(self) -> Inspection:
        """What the compiler makes of it."""
        ...

    @property
    def measurement(self) -> Measurement:
        """A short one of the compiled function, with memory."""
        ...

    @property
    def eager(self) -> Measurement:
        """A short one of the eager function."""
        ...

    @property
    def watch(self) -> Watch:
        """What was seen of a few calls as it was given, with new inputs of one shape."""
        ...

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        """Run times of `variant` against `baseline` (default: the compiled function), in pairs, in fresh processes.

        A change is measured twice before it is called one. Takes 5 to 20 s, so ask only where it may matter; what
        another rule has asked before, word for word, is answered at once.

        Raises:
            NotMeasured: the time of the audit is used up, or a side fails.
        """
        ...

    @property
    def remarks(self) -> Sequence[Remark]:
        """What was done with the function to find all this out, and what was not."""
        ...
