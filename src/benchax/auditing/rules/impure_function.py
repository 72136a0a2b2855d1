"""Finds a function that does more than give a result: the rest happens while it is traced, and not again.

The function is traced twice for this. What the second trace changes, prints, or makes different, each trace does; what
only the first one changes is a memo that was filled, and no finding.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import Source, calls, where_of
from benchax.measuring import program as programs
from benchax.measuring.clock_reads import ClockRead, watch_clock_reads
from benchax.measuring.program import program_of
from benchax.measuring.surroundings import State, changes, state_of
from benchax.program.jaxpr import own_line
from benchax.results.audit import Finding, Where

TRACED_TWICE = "the function was traced twice to see this; what it changed stays changed"
LARGE = 1 << 20
"""Elements; larger constants are not compared."""
_RANDOM = re.compile(r"((np|numpy)\.)?random\.\w+$")
# Functions stand in the text of a jaxpr by their addresses, which differ from trace to trace.
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")


@dataclass(frozen=True)
class _Trace:
    closed: Any
    """The program."""
    text: str
    constants: list[Any]
    printed: str
    before: State
    after: State
    clock_reads: list[ClockRead]


@rule("impure-function", "does it do anything beside giving a result?", "warning")
def impure_function(e: Evidence) -> Iterable[Finding]:
    # Without jit a plain function does these things in each call, as its author meant.
    severity = None if e.is_jitted else "info"
    if e.failure is not None and e.failure.stage == "trace":
        raise NotApplicable(f"it does not trace: {e.failure.message}")
    first, second = _trace(e), _trace(e)
    for name, change in changes(second.before, second.after).items():
        yield impure_function.finding(
            f"changes {name!r} while it is traced, and not when it runs compiled",
            [f"{name!r} {change} in one trace", TRACED_TWICE],
            "Return the new value as an output and store it outside. A compiled call does not run Python: what is "
            f"done to {name!r} happens once for each new shape, and may hold traced values.",
            where=_where(e.source, name) or e.def_where,
            severity=severity,
        )
    if second.printed:
        yield impure_function.finding(
            "prints while it is traced, and not when it runs compiled",
            [f"printed by a trace: {second.printed.strip()[:200]!r}", TRACED_TWICE],
            "Use jax.debug.print, which prints values in each run, or jax.experimental.io_callback for other "
            "effects. Both make each call wait for Python: measure what they cost before you leave them in.",
            where=_print_where(e.source) or e.def_where,
            severity=severity,
        )
    for read in second.clock_reads:
        # Told by the call, not by what differs: in float32 the seconds since 1970 step by 128, and traces agree.
        yield impure_function.finding(
            f"reads the clock by {read.name} while it is traced, and not when it runs compiled",
            [f"called by a trace: {read}", TRACED_TWICE],
            "Compiled, it keeps what it read first. Pass the time as an argument; to time a part of a function, read "
            "the clock in the compiled program (benchax.clock.stamp).",
            where=(read.file, read.line),
            severity=severity,
        )
    if (found := _difference(first, second)) is not None:
        difference, line = found
        yield impure_function.finding(
            "gives another program each time it is traced",
            [difference, TRACED_TWICE],
            "It reads something that changes by itself: random numbers of Python or NumPy, the time, a counter. "
            "Compiled, it keeps what it read first. Pass such values as arguments; for random numbers pass a key "
            "of jax.random.",
            where=_random_where(e.source) or _stored_where(e.source) or where_of(line) or e.def_where,
        )


def _trace(e: Evidence) -> _Trace:
    case = e.plain_case
    program = program_of(case)  # a new function object, so that JAX traces it anew
    before = state_of(case.fn)
    with contextlib.redirect_stdout(io.StringIO()) as printed, watch_clock_reads() as reads:
        traced = programs.trace(program, e.inputs.args, e.inputs.kwargs)
    after = state_of(case.fn)
    return _Trace(
        traced.jaxpr,
        _ADDRESS.sub("0x", str(traced.jaxpr)),
        list(getattr(traced.jaxpr, "consts", [])),
        printed.getvalue(),
        before,
        after,
        reads,
    )


def _difference(first: _Trace, second: _Trace) -> tuple[str, str] | None:
    """(the first line in which two traces differ, the user's line that wrote it); None where they are the same
    program."""
    if first.text != second.text:
        pairs = zip(first.text.splitlines(), second.text.splitlines(), strict=False)
        one, other = next(((a, b) for a, b in pairs if a != b), ("a shorter one", "a longer one"))
        text = f"the first trace gives {one.strip()[:100]!r}, the second {other.strip()[:100]!r}"
        return text, _line_of_number(first.closed, second.closed)
    for at, (one, other) in enumerate(zip(first.constants, second.constants, strict=False)):
        if one is not other and not _is_equal(one, other):
            text = f"an array that it closes over, {one.dtype}{list(one.shape)}, has other values in the second trace"
            return text, _line_reading_constant(second.closed, at)
    return None


def _line_of_number(first: Any, second: Any) -> str:
    """Of the first operation that is given another number in the second trace."""
    numbers = ([[getattr(v, "val", None) for v in eqn.invars] for eqn in one.jaxpr.eqns] for one in (first, second))
    pairs = zip(*numbers, second.jaxpr.eqns, strict=False)
    return next((own_line(eqn) for one, other, eqn in pairs if repr(one) != repr(other)), "")


def _line_reading_constant(closed: Any, at: int) -> str:
    constant = closed.jaxpr.constvars[at]
    readers = (eqn for eqn in closed.jaxpr.eqns if any(v is constant for v in eqn.invars))
    return next((own_line(eqn) for eqn in readers), "")


def _is_equal(one: Any, other: Any) -> bool:
    if getattr(one, "size", LARGE) >= LARGE or not np.issubdtype(one.dtype, np.number):
        return True  # not compared
    return np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.issubdtype(one.dtype, np.inexact))


def _random_where(source: Source | None) -> Where | None:
    """The first line that draws random numbers of NumPy or Python by name: np.random.normal(…), random.random()."""
    lines = [
        node.lineno
        for node in (ast.walk(source.tree) if source else ())
        if isinstance(node, ast.Call) and _RANDOM.match(ast.unparse(node.func))
    ]
    return (source.file, min(lines)) if source and lines else None


def _stored_where(source: Source | None) -> Where | None:
    """The first line that stores an attribute of an argument or of what is outside: self.count += 1."""
    lines = [
        node.lineno
        for node in (ast.walk(source.tree) if source else ())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return (source.file, min(lines)) if source and lines else None


def _print_where(source: Source | None) -> Where | None:
    lines = [call.lineno for call in calls(source.tree, "print") if isinstance(call.func, ast.Name)] if source else []
    return (source.file, min(lines)) if source and lines else None


def _where(source: Source | None, name: str) -> Where | None:
    """The first line that names it, assignments and calls of its methods before others."""
    if source is None:
        return None
    named = [node for node in ast.walk(source.tree) if isinstance(node, ast.Name) and node.id == name]
    stored = [node.lineno for node in named if isinstance(node.ctx, ast.Store)]
    called = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.value in named
    ]
    lines = sorted(stored) or sorted(called) or sorted(node.lineno for node in named)
    return (source.file, lines[0]) if lines else None
