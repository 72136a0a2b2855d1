"""Evidence of a function of a program, which is asked inside of its process when it has ended.

The functions are read, not called: their inputs are shapes, so nothing of what they do is done twice. Rules that need
a time or a value say that they did not get it; what of the compiler's plan, the jaxpr or the source they need is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from benchax.auditing.compiled_evidence import CompiledEvidence
from benchax.auditing.syntax import Source, source_of
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.inspecting.inspect import abstract_inputs
from benchax.measuring.inputs import Inputs
from benchax.model import Comparison, Measurement
from benchax.results.watch import Watch

WHY_NOT = "functions of a program are read when it has ended, not called"


class ReadEvidence(CompiledEvidence):
    """What is found out of one jitted function that may be traced and compiled, and not called."""

    is_timed = False
    why_not_called = WHY_NOT
    remarks = ()

    def __init__(self, case: Case, *, closed_jaxpr: Any = None, user: Any = None, **about: Any) -> None:
        super().__init__(case, **about)
        self._jaxpr, self._user = closed_jaxpr, user

    @property
    def closed_jaxpr(self) -> Any:
        """As JAX made it when the program called the function, where that was seen."""
        return self._jaxpr if self._jaxpr is not None else super().closed_jaxpr

    @property
    def source(self) -> Source | None:
        return self._once("source", lambda: source_of(self._user or self.fn))

    @property
    def is_jitted(self) -> bool:
        return True

    @property
    def eager_case(self) -> Case:
        return self._without_jit()

    @property
    def given(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        return self.case.inputs()

    @property
    def inputs(self) -> Inputs:
        return self._inputs

    def fresh_inputs(self) -> NoReturn:
        raise NotMeasured(WHY_NOT)

    @property
    def measurement(self) -> Measurement:
        raise NotMeasured(WHY_NOT)

    @property
    def eager(self) -> Measurement:
        raise NotMeasured(WHY_NOT)

    @property
    def watch(self) -> Watch:
        raise NotMeasured(WHY_NOT)

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        raise NotMeasured(WHY_NOT)

    def _make_inputs(self) -> Inputs:
        return abstract_inputs(self.case)

    def _refuse_tracing(self) -> None:
        """Nothing speaks against it: the program has traced the function itself."""
