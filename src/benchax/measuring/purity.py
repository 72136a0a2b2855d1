"""Checks that a function is the same each time it is traced, and that it leaves no traced values behind.

A compiled program keeps the values that Python gave it once: a random number, the time, a counter. Every program that
is built around such a function (`in_graph`, `loop`, an export, a reference) holds another function. So benchax traces
it again. If the second jaxpr differs, it traces a third time, in the same way as the second. Only if these two differ
as well, the function counts as impure. benchax also compares all that the function reaches besides its arguments,
before and after a trace. Traced values that are left there are work whose result the compiled program does not have.

Jaxprs are compared equation by equation; the names of variables do not matter. Constants count by value. Parameters
count if they are plain values or jaxprs. Functions and objects among them are new in every trace, and are ignored.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from benchax.errors import NotMeasured, UsageError
from benchax.measuring.program import as_reason
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.state import changes, is_carried, state_of, values_of
from benchax.measuring.timers.base import Subject
from benchax.program.jaxpr import open_program, user_line
from benchax.source_files import is_library
from benchax.units import seconds

LONGEST_TRACE_S = 0.5
"""A function that takes longer to trace is not traced again."""
DEPTH = 3

LARGE = 1 << 20
"""Elements; larger constants are taken for equal."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)


@dataclass(frozen=True)
class Purity:
    """The results of several traces of one function."""

    difference: str = ""
    """How two traces of it differ; empty if they do not."""
    changed: dict[str, str] = field(default_factory=dict)
    """Changes of a trace besides its result, by name, in words."""
    clock_reads: tuple[str, ...] = ()
    """Clocks that it reads while it is traced, with their lines."""


def check(subject: Subject, built: BuiltProgram, name: str, put_back: Callable[[], None]) -> Purity:
    """Traces the function again, without jit, so that JAX's caches do not answer for it.

    Args:
        name: of the function.
        put_back: undoes the changes that building made to values that the function reaches besides its arguments.

    Raises:
        NotMeasured: it cannot be traced here, or takes too long.
        UsageError: traced values are left in a global, a closure or an object.
    """
    fn: Any = subject.program.eager
    if subject.program.inner is None:  # Python runs in each call, or never again
        return Purity()
    if fn is None:
        raise NotMeasured("there is no Python function behind it that could be traced again")
    for where, value in values_of(fn).items():
        if _holds_tracers(value):
            put_back()
            raise UsageError(
                f"{name} leaves a traced value in {where!r}: what leads there is no part of the compiled program",
                "a function that returns all that it computes",
                f"return the new value of {where!r} as an output, or pass it as an argument that is changed in place "
                "(an object of flax.nnx, a jax.new_ref)",
            )
    trace_s = built.seconds.get("trace", built.seconds.get("lower", 0.0))
    # Known from building: the time to lower stands in for it where a wrapper traces inside its own `lower`.
    if trace_s > LONGEST_TRACE_S:
        raise NotMeasured(f"tracing it takes {seconds(trace_s)}, and would be repeated for this")
    before = state_of(fn)
    with watch_clock_reads() as reads:
        second = _trace(subject, fn)
    changed, clocks = changes(before, state_of(fn)), tuple(map(str, reads))
    if built.traced is not None and difference(built.traced.jaxpr, second, user_line) is None:
        return Purity("", changed, clocks)
    return Purity(difference(second, _trace(subject, fn), user_line) or "", changed, clocks)


def _trace(subject: Subject, fn: Callable[..., Any]) -> Any:
    body = subject.body(fn)

    def arrays(*values: Any) -> list[Any]:  # modules of equinox hold functions as well
        return [leaf for leaf in jax.tree.leaves(body(list(values))) if is_carried(leaf)]

    with as_reason("its eager function does not trace"):
        return jax.make_jaxpr(arrays)(*subject.dynamic_leaves)


def _holds_tracers(value: Any, depth: int = DEPTH) -> bool:
    if isinstance(value, Tracer):
        return True
    if depth == 0:
        return False
    if isinstance(value, dict):
        return any(_holds_tracers(each, depth - 1) for each in value.values())
    if isinstance(value, list | tuple | set | frozenset):
        return any(_holds_tracers(each, depth - 1) for each in value)
    own = getattr(value, "__dict__", None)
    return isinstance(own, dict) and _holds_tracers(own, depth - 1)


def difference(one: Any, other: Any, line: Callable[[Any], str] = lambda equation: "") -> str | None:
    """Describes the first difference between two closed jaxprs; None if they are the same program.

    Args:
        line: returns file and line of an equation.
    """
    return next(_differences(one, other, line), None)


def _differences(one: Any, other: Any, line: Callable[[Any], str]) -> Iterator[str]:
    for a, b in zip(getattr(one, "consts", ()), getattr(other, "consts", ()), strict=False):
        if not _is_equal(a, b):
            yield f"an array that is part of it, {_spec(a)}, has other values"
    one, other = open_program(one)[0], open_program(other)[0]
    numbers = ({}, {})
    for a, b in zip((*one.constvars, *one.invars), (*other.constvars, *other.invars), strict=False):
        numbers[0][a] = numbers[1][b] = len(numbers[0])
    for a, b in zip(one.eqns, other.eqns, strict=False):
        for found in _of_equations(a, b, numbers, line):
            where = line(b) or line(a)
            yield found + (f" at {where}" if where and " at " not in found else "")
        for x, y in zip(a.outvars, b.outvars, strict=False):
            numbers[0][x] = numbers[1][y] = len(numbers[0])
    if len(one.eqns) != len(other.eqns):
        yield f"the one has {len(one.eqns)} operations, the other {len(other.eqns)}"
    yield from _of_operands(one.outvars, other.outvars, numbers)


def _of_equations(a: Any, b: Any, numbers: Any, line: Callable[[Any], str]) -> Iterator[str]:
    if a.primitive.name != b.primitive.name:
        yield f"{a.primitive.name} became {b.primitive.name}"
    yield from _of_operands(a.invars, b.invars, numbers)
    for name, value in a.params.items():
        for found in _of_values(value, b.params.get(name), line):
            yield found if " became " in found else f"{name} of {a.primitive.name} {found}"


def _of_operands(one: Sequence[Any], other: Sequence[Any], numbers: Any) -> Iterator[str]:
    if len(one) != len(other):
        yield f"{len(one)} operands became {len(other)}"
    for a, b in zip(one, other, strict=False):
        if str(a.aval) != str(b.aval):
            yield f"{a.aval} became {b.aval}"
        if hasattr(a, "val") and hasattr(b, "val"):
            if not _is_equal(a.val, b.val):
                is_number = np.ndim(a.val) == 0
                yield f"constant {a.val} became {b.val}" if is_number else f"a constant {_spec(a.val)} changed"
        elif hasattr(a, "val") or hasattr(b, "val") or numbers[0].get(a) != numbers[1].get(b):
            yield "an operation takes another operand"


def _of_values(a: Any, b: Any, line: Callable[[Any], str]) -> Iterator[str]:
    if all(hasattr(value, "eqns") for value in (a, b)):
        yield from _differences(a, b, line)
    elif all(isinstance(value, list | tuple) for value in (a, b)):
        if len(a) != len(b):
            yield f"went from {len(a)} to {len(b)} members"
        for x, y in zip(a, b, strict=False):
            yield from _of_values(x, y, line)
    elif isinstance(a, PLAIN) and isinstance(b, PLAIN) and a != b and not (a != a and b != b):
        yield f"went from {a!r} to {b!r}"


def _is_equal(a: Any, b: Any) -> bool:
    if a is b or not all(hasattr(x, "dtype") or isinstance(x, PLAIN) for x in (a, b)):
        return True
    if jax.dtypes.issubdtype(getattr(a, "dtype", np.float32), jax.dtypes.extended) or np.size(a) >= LARGE:
        return True
    one, other = np.asarray(a), np.asarray(b)
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _spec(value: Any) -> str:
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(np.shape(value))}"


# ---- clock reads -----------------------------------------------------------------------------------------------------
#
# Finds a function's readings of the clock while it is traced: a compiled program keeps these values for good.
#
# Two traces do not show it: in float32 the seconds since 1970 step by 128. So Python reports the called functions
# (`sys.setprofile`), and the user's own lines that read a clock are reported by name. The two traces find random
# numbers: a generator with a fixed seed gives the same ones each time, and is fine.


# Of Python's own modules, all of which are written in C: Python says so before each call of one.
TIME = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime",
    "ctime",
)  # fmt: skip
DATETIME = ("now", "utcnow", "today")
_NAMES = frozenset((*TIME, *DATETIME))


class ClockRead(NamedTuple):
    """One reading of a clock by a line of the user's."""

    name: str
    """time.time"""
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} at {self.file}:{self.line}"


def why_not_watched() -> str:
    """Why `watch_clock_reads` would find nothing now; empty if it looks."""
    # Up to Python 3.11: there cProfile is no function, and could not be put back.
    before = sys.getprofile()
    return "a profiler (cProfile) is watching this process" if before is not None and not callable(before) else ""


@contextmanager
def watch_clock_reads() -> Iterator[list[ClockRead]]:
    """The readings of the block, each line once; complete when the block has ended. None if `why_not_watched`."""
    found: dict[ClockRead, None] = {}
    reads: list[ClockRead] = []

    def note(frame: Any, event: str, called: Any) -> None:
        # Called four times for each call in a trace, so the names come first.
        if event != "c_call" or getattr(called, "__name__", "") not in _NAMES:
            return
        if (name := _name_of(called)) and not is_library(frame.f_code.co_filename):
            found.setdefault(ClockRead(name, frame.f_code.co_filename, frame.f_lineno))

    if why_not_watched():
        yield reads
        return
    before = sys.getprofile()
    # A debugger's own hook is put back afterwards; while we look it does not see these calls.
    sys.setprofile(note)
    try:
        yield reads
    finally:
        sys.setprofile(before)
        reads.extend(found)


def _name_of(called: Any) -> str:
    """time.time, datetime.now; empty for all that reads no clock."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in TIME and getattr(owner, "__name__", "") == "time":
        return f"time.{name}"
    if name in DATETIME and isinstance(owner, type) and owner.__module__ == "datetime":
        return f"{owner.__name__}.{name}"
    return ""
