"""Evidence of a function of a program of which only the trace is kept: the jaxpr that JAX made when it was called.

Rules that need no more than that (`Rule.needs_trace_only`) are asked with it about every function that was recorded:
also those that take long to compile, were given shardings, or belong to a program that failed.
"""

from __future__ import annotations

from typing import Any

from benchax.auditing.read_evidence import ReadEvidence
from benchax.auditing.recorded_functions import RecordedFunction
from benchax.errors import NotMeasured
from benchax.measuring.prepare import Prepared
from benchax.model import Failure
from benchax.results.inspection import Inspection

WHY_NOT = "only the trace of this function is kept; it was not compiled again"


class TracedEvidence(ReadEvidence):
    """What is known of a function from its jaxpr."""

    def __init__(self, recorded: RecordedFunction) -> None:
        super().__init__(
            recorded.case,
            held_arguments=recorded.held_arguments,
            repeated_inputs=recorded.repeated,
            carried=recorded.carried,
            wide_lines=recorded.wide_lines,
            called_at=recorded.called_at,
            data=recorded.inputs,
            input_names=recorded.input_names,
            nan_at=recorded.nan_at,
            compile_s=recorded.compile_s,
            closed_jaxpr=recorded.jaxpr,
            user=recorded.user,
        )

    @property
    def closed_jaxpr(self) -> Any:
        if self._jaxpr is None:
            raise NotMeasured("its jaxpr could not be seen when it was compiled")
        return self._jaxpr

    @property
    def failure(self) -> Failure | None:
        return None

    @property
    def prepared(self) -> Prepared:
        raise NotMeasured(WHY_NOT)

    @property
    def inspection(self) -> Inspection:
        raise NotMeasured(WHY_NOT)

    @property
    def signature(self) -> str:
        """The inputs as JAX has them."""
        return ", ".join(aval.str_short(short_dtypes=True) for aval in self.closed_jaxpr.in_avals[:6])
