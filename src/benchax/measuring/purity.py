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
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from benchax.errors import NotMeasured, UsageError
from benchax.measuring.prepare import Prepared
from benchax.measuring.program import as_reason
from benchax.measuring.state import changes, is_carried, state_of, values_of
from benchax.measuring.timers.base import Subject
from benchax.program.jaxpr import is_literal, is_program, open_program, user_line
from benchax.source_files import is_library
from benchax.units import plural, seconds

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


def check(subject: Subject, built: Prepared, name: str, put_back: Callable[[], None]) -> Purity:
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
    # Known from building. If a wrapper traces inside its own `lower`, use the time to lower instead.
    if trace_s > LONGEST_TRACE_S:
        raise NotMeasured(f"tracing it takes {seconds(trace_s)}, and would be repeated for this")
    before = state_of(fn)
    with watch_clock_reads() as reads:
        second = _trace(subject, fn)
    changed, clocks = changes(before, state_of(fn)), tuple(map(str, reads))
    if built.traced is not None and difference(built.traced.jaxpr, second) is None:
        return Purity("", changed, clocks)
    return Purity(difference(second, _trace(subject, fn)) or "", changed, clocks)


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
    own = value if isinstance(value, dict | list | tuple | set | frozenset) else getattr(value, "__dict__", ())
    members = own.values() if isinstance(own, dict) else own
    return any(_holds_tracers(each, depth - 1) for each in members)


class Part(NamedTuple):
    """A part of a program, which another trace must have in the same place."""

    what: str
    """Text before `said`."""
    said: str
    counts: Any = None
    """This has to be equal, too."""
    equation: Any = None
    """The one that it belongs to."""


def difference(one: Any, other: Any, line: Callable[[Any], str] = user_line) -> str | None:
    """Describes the first difference between two closed jaxprs; None if they are the same program.

    Args:
        line: returns file and line of an equation.
    """
    for a, b in itertools.zip_longest(_parts(one), _parts(other)):
        if a is None or b is None:
            return "one of them has more operations"
        if a[:3] != b[:3]:
            text = f"{a.what}{a.said} {'has another value' if a.said == b.said else f'became {b.said}'}"
            where = b.equation and line(b.equation)
            return f"{text} at {where}" if where else text
    return None


def _parts(program: Any) -> Iterator[Part]:
    for constant in getattr(program, "consts", ()):
        yield _part("the constant ", constant, None)
    jaxpr = open_program(program)[0]
    numbers = {variable: i for i, variable in enumerate((*jaxpr.constvars, *jaxpr.invars))}
    for equation in jaxpr.eqns:
        yield Part("", equation.primitive.name, None, equation)
        yield from _operands(equation.invars, numbers, equation)
        for name, value in equation.params.items():
            yield from _values(f"{name} of {equation.primitive.name} ", value, equation)
        for variable in equation.outvars:
            numbers[variable] = len(numbers)
    yield from _operands(jaxpr.outvars, numbers, None)


def _operands(operands: Sequence[Any], numbers: Mapping[Any, int], equation: Any) -> Iterator[Part]:
    yield Part("the number of operands ", str(len(operands)), None, equation)
    for operand in operands:
        yield Part("", str(operand.aval), None, equation)
        if is_literal(operand):
            yield _part("the constant ", operand.val, equation)
        else:
            yield Part("the operand ", str(operand.aval), numbers.get(operand), equation)


def _values(what: str, value: Any, equation: Any) -> Iterator[Part]:
    if is_program(value):
        yield from _parts(value)
    elif isinstance(value, list | tuple):
        yield Part(what, plural(len(value), "member"), None, equation)
        for each in value:
            yield from _values(what, each, equation)
    elif isinstance(value, PLAIN):
        yield _part(what, value, equation)


def _part(what: str, value: Any, equation: Any) -> Part:
    """An array counts by its bytes, except for keys and large ones."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or isinstance(value, np.dtype):
        return Part(what, repr(value) if isinstance(value, PLAIN) else type(value).__name__, None, equation)
    is_known = not jax.dtypes.issubdtype(dtype, jax.dtypes.extended) and np.size(value) < LARGE
    if is_known and not np.ndim(value):
        return Part(what, str(value), None, equation)
    counts = np.asarray(value).tobytes() if is_known else None
    return Part(what, f"{dtype}{list(np.shape(value))}", counts, equation)


# ---- clock reads -----------------------------------------------------------------------------------------------------
#
# Finds a function's readings of the clock while it is traced: a compiled program keeps these values for good.
#
# Two traces do not show it: in float32 the seconds since 1970 step by 128. So Python reports what is called, and the
# user's own lines that read a clock are reported by name. The two traces find random numbers: a generator with a fixed
# seed gives the same ones each time, and is fine.
#
# `sys.monitoring` reports a call by a library once, ever. Up to Python 3.11 `sys.setprofile` reports each call and
# return, which makes a trace take three times as long.


# Functions of Python's own modules are written in C, and Python reports each of their calls.
TIME = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime",
    "ctime",
)  # fmt: skip
OWNERS = dict.fromkeys(TIME, "time") | dict.fromkeys(("now", "utcnow", "today"), "datetime")
"""By the name of a function that reads a clock: its module."""


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
    # Up to Python 3.11, cProfile's hook is not a function and could not be restored.
    before = sys.getprofile()
    is_excluded = sys.version_info < (3, 12) and before is not None and not callable(before)
    return "a profiler (cProfile) is watching this process" if is_excluded else ""


@contextmanager
def watch_clock_reads() -> Iterator[list[ClockRead]]:
    """The readings of the block in this thread, each line once. None if `why_not_watched`."""
    reads: list[ClockRead] = []

    def note(called: Any, file: str, line: int) -> None:
        owner, name = called.__self__, called.__name__
        is_clock = OWNERS[name] in (getattr(owner, "__name__", ""), getattr(owner, "__module__", ""))
        read = ClockRead(f"{getattr(owner, '__name__', '')}.{name}", file, line)
        if is_clock and not is_library(file) and read not in reads:
            reads.append(read)

    watched = nullcontext() if why_not_watched() else _profiled(note)
    if sys.version_info >= (3, 12):
        tool = next((tool for tool in _TOOLS if sys.monitoring.get_tool(tool) is None), None)
        watched = watched if tool is None else _monitored(tool, note)
    with watched:
        yield reads


Note = Callable[[Any, str, int], None]
"""Takes a function of OWNERS, or its namesake, and the file and the line that calls it."""
_TOOLS = (3, 4)
"""The tools of `sys.monitoring` that Python has no use for."""


def _can_read(called: Any) -> bool:
    return type(called) is BuiltinFunctionType and called.__name__ in OWNERS


@contextmanager
def _monitored(tool: int, note: Note) -> Iterator[None]:
    monitoring, thread = sys.monitoring, threading.get_ident()

    def saw(code: CodeType, offset: int, called: Any, first: Any) -> Any:
        if is_library(code.co_filename):
            return monitoring.DISABLE
        if _can_read(called) and threading.get_ident() == thread:
            lines = (line for start, end, line in code.co_lines() if line and start <= offset < end)
            note(called, code.co_filename, next(lines, code.co_firstlineno))
        return None

    monitoring.use_tool_id(tool, "benchax")
    monitoring.register_callback(tool, monitoring.events.CALL, saw)
    monitoring.set_events(tool, monitoring.events.CALL)
    try:
        yield
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, monitoring.events.CALL, None)
        monitoring.free_tool_id(tool)


@contextmanager
def _profiled(note: Note) -> Iterator[None]:
    def saw(frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and _can_read(called):
            note(called, frame.f_code.co_filename, frame.f_lineno)

    before = sys.getprofile()
    # Restore a debugger's own hook afterwards. It does not see the calls inside this block.
    sys.setprofile(saw)
    try:
        yield
    finally:
        sys.setprofile(before)
