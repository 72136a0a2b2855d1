"""Finds a function that does not trace or compile, for a reason that no other rule explains."""

from __future__ import annotations

import linecache
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.errors import NotMeasured
from benchax.measuring.diagnosis import user_line
from benchax.measuring.tracer_errors import explain
from benchax.results.audit import Finding

READ_THE_ERROR = "Call it once by itself, and read the error where it arises."


@rule("not-traceable", "does it trace and compile?", "error")
def not_traceable(e: Evidence) -> Iterable[Finding]:
    failure = e.failure
    if failure is None:
        return
    if e.why_not_called:  # the program that it belongs to has traced it
        raise NotMeasured(failure.message)
    if e.error is not None and explain(e.error) is not None:
        raise NotApplicable("branch-on-value explains why it does not")
    where = (where_of(user_line(e.error)) if e.error is not None else None) or e.def_where
    line = linecache.getline(*where).strip() if where else ""
    seen = [f"line {where[1]}: {line}"] if where and line else []
    seen.append(failure.message)
    yield not_traceable.finding(
        f"it does not {failure.stage}",
        seen,
        failure.advice or READ_THE_ERROR,
        where=where,
        # Eagerly it may run, and then it is no mistake as it stands.
        severity="error" if e.is_jitted else "warning",
    )
