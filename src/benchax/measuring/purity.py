"""Is a function the same each time that it is traced? And does it leave anything behind?

A compiled program keeps what Python gave it once: a random number, the time, a counter. Every program that is built
around such a function (`in_graph`, `loop`, an export, a reference) is of another function. So it is traced once more,
and where the second jaxpr differs, it is traced a third time, by the same means as the second: only if these two differ
as well is the function said to be impure. What the function reaches beside its arguments is looked at before and after
a trace; traced values that are left there are work whose result the compiled program does not have.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.core import Tracer

from benchax.artifacts.jaxpr import user_line
from benchax.errors import NotMeasured, UsageError
from benchax.measuring.jaxpr_difference import difference
from benchax.measuring.mutation import is_carried
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.surroundings import changes, state_of, values_of
from benchax.measuring.timers.base import Subject
from benchax.units import seconds

LONGEST_TRACE_S = 0.5
"""A function that takes longer to trace is not traced again."""
DEPTH = 3


@dataclass(frozen=True)
class Purity:
    """What traces of one function have shown."""

    difference: str = ""
    """How two traces of it differ; empty where they do not."""
    changed: dict[str, str] = field(default_factory=dict)
    """What a trace changes beside its result, by name, in words."""


def check(subject: Subject, built: BuiltProgram, name: str, put_back: Callable[[], None]) -> Purity:
    """Traces the function again, without jit, so that JAX's caches do not answer for it.

    Args:
        name: of the function.
        put_back: undoes what building it has done to what it reaches beside its arguments.

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
    if trace_s > LONGEST_TRACE_S:
        raise NotMeasured(f"tracing it takes {seconds(trace_s)}, and would be repeated for this")
    before = state_of(fn)
    second = _trace(subject, fn)
    changed = changes(before, state_of(fn))
    if built.traced is not None and difference(built.traced.jaxpr, second, user_line) is None:
        return Purity("", changed)
    return Purity(difference(second, _trace(subject, fn), user_line) or "", changed)


def _trace(subject: Subject, fn: Callable[..., Any]) -> Any:
    body = subject.body(fn)

    def arrays(*values: Any) -> list[Any]:  # modules of equinox hold functions as well
        return [leaf for leaf in jax.tree.leaves(body(list(values))) if is_carried(leaf)]

    try:
        return jax.make_jaxpr(arrays)(*subject.dynamic_leaves)
    except Exception as error:
        first_line = (str(error).splitlines() or [""])[0]
        raise NotMeasured(f"its eager function does not trace ({type(error).__name__}: {first_line})") from error


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
