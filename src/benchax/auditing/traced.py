"""What rules read from the jaxpr: values and who makes and reads them, with inner jits inlined.

`Inspection` counts equations and names their lines. Rules about types and memory need to know which value goes where,
across the small jits that `jnp` is made of: that is `steps`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import jax.numpy as jnp
from jax.extend import core

from benchax.auditing.evidence import Evidence
from benchax.errors import NotMeasured
from benchax.program.arguments import size_bytes, spec
from benchax.program.jaxpr import LoopOperands, equations, own_line, split_operands, user_line
from benchax.results.inspection import JaxprFacts

CALLS: Mapping[str, str] = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "eval_jaxpr": "call_jaxpr",
    "core_call": "call_jaxpr",
    "checkpoint": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Equations that stand for the body they hold, and under which parameter (jax 0.6 to 0.12). An unknown one is taken
as it is, so that less is seen."""


@dataclass(eq=False)
class TracedValue:
    """An array of the program; two are one if they are the same object."""

    shape: tuple[int, ...]
    dtype: Any
    is_weak: bool
    literal: Any = None
    """Its value, where it stands in the program as a number."""

    @property
    def spec(self) -> str:
        return spec(self.shape, self.dtype)

    @property
    def size_bytes(self) -> int:
        return size_bytes(self.shape, self.dtype) or 0

    def is_of(self, *kinds: Any) -> bool:
        return any(jnp.issubdtype(self.dtype, kind) for kind in kinds)


class TracedEquation(NamedTuple):
    """One equation, with inner jits inlined."""

    equation: Any
    scope: str
    reads: tuple[TracedValue, ...]
    makes: tuple[TracedValue, ...]
    calls: tuple[Any, ...] = ()
    """The equations that it was inlined for, outermost first. JAX keeps the trace of an inner jit, without the line of
    whoever calls it."""

    @property
    def name(self) -> str:
        return self.equation.primitive.name

    @property
    def outermost(self) -> Any:
        """The equation of its program that it came of: an inner jit, or itself."""
        return self.calls[0] if self.calls else self.equation

    @property
    def inwards(self) -> tuple[Any, ...]:
        """It and the equations that it was inlined for, innermost first."""
        return (self.equation, *reversed(self.calls))

    @property
    def line(self) -> str:
        """file:line of the user's own files, of a library's where there is none; empty where it is not told."""
        own = (own_line(each) for each in self.inwards)
        return next((line for line in own if line), "") or next(filter(None, map(user_line, self.inwards)), "")

    @property
    def at(self) -> str:
        """For the end of a sentence: " at file:line", or nothing."""
        return f" at {self.line}" if self.line else ""

    def split_operands(self, values: Sequence[Any]) -> LoopOperands:
        """Groups values that belong to the operands of this loop."""
        return split_operands(self.equation, values)


class OfStep(Protocol):
    """What was found of one step."""

    @property
    def step(self) -> TracedEquation: ...


Found = TypeVar("Found", bound=OfStep)


def first_of_each_line(found: Iterable[Found]) -> Iterator[Found]:
    """One of those that one line of the user's has made: a derivative, or a second trace, makes it once more."""
    told: set[str] = set()
    for one in found:
        if one.step.line not in told:
            told.add(one.step.line)
            yield one


CONVERSIONS = ("astype", "convert_element_type", "asarray", "array")


def is_asked_for(conversion: TracedEquation) -> bool:
    """Did somebody write this conversion, not JAX's promotion? True also where the frames of JAX cannot be read, which
    it does not document (tried on jax 0.10.2 to 0.12.0.1): what cannot be told is no finding."""
    try:
        frames = conversion.equation.source_info.traceback.frames
        return any(frame.function_name in CONVERSIONS for frame in frames)
    except AttributeError:
        return True


@dataclass(frozen=True)
class TracedProgram:
    """A program: its inputs in the order of `Inspection.jaxpr.inputs`, its steps, its outputs."""

    inputs: tuple[TracedValue, ...]
    steps: tuple[TracedEquation, ...]
    outputs: tuple[TracedValue, ...]


def jaxpr_facts(e: Evidence) -> JaxprFacts:
    """What was counted in the jaxpr.

    Raises:
        NotMeasured: it cannot be reached.
    """
    if e.inspection.jaxpr is None:
        raise NotMeasured(e.inspection.why_absent("jaxpr") or "the jaxpr cannot be reached")
    return e.inspection.jaxpr


def closed_jaxpr(e: Evidence) -> Any:
    """Returns the closed jaxpr of the compiled function.

    Raises:
        NotMeasured: it is a wrapper without a separate step of tracing.
    """
    return e.closed_jaxpr


def count_equations(closed: Any) -> int:
    """All of them, nested ones included."""
    return sum(1 for _ in equations(closed))


def flow(closed: Any) -> TracedProgram:
    inputs = tuple(_value(v) for v in closed.jaxpr.invars)
    found: list[TracedEquation] = []
    outputs = _walk(closed.jaxpr, inputs, "", (), found)
    return TracedProgram(inputs, tuple(found), outputs)


def _walk(
    jaxpr: Any,
    inputs: tuple[TracedValue, ...],
    scope: str,
    calls: tuple[Any, ...],
    found: list[TracedEquation],
) -> tuple[TracedValue, ...]:
    known: dict[Any, TracedValue] = dict(zip(jaxpr.invars, inputs, strict=True))

    def of(atom: Any) -> TracedValue:
        if isinstance(atom, core.Literal):
            return _value(atom)
        # New are what an equation makes, and constants, which none makes.
        return known.setdefault(atom, _value(atom))

    for equation in jaxpr.eqns:
        reads = tuple(of(atom) for atom in equation.invars)
        here = "/".join(part for part in (scope, str(equation.source_info.name_stack)) if part)
        body = _body(equation)
        makes = (
            tuple(of(v) for v in equation.outvars)
            if body is None
            else _walk(body, reads, here, (*calls, equation), found)
        )
        known.update(zip(equation.outvars, makes, strict=True))
        if body is None:
            found.append(TracedEquation(equation, here, reads, makes, calls))
    return tuple(of(atom) for atom in jaxpr.outvars)


def _body(equation: Any) -> Any:
    body = equation.params.get(CALLS.get(equation.primitive.name, ""))
    body = getattr(body, "jaxpr", body)
    # Where they are not as many, inputs of the body are no operands of the equation one by one: it stays one step.
    return body if hasattr(body, "eqns") and len(body.invars) == len(equation.invars) else None


def _value(atom: Any) -> TracedValue:
    aval = atom.aval
    return TracedValue(
        tuple(getattr(aval, "shape", ())),
        getattr(aval, "dtype", None),
        bool(getattr(aval, "weak_type", False)),
        atom.val if isinstance(atom, core.Literal) else None,
    )


def loops_and_all(jaxpr: Any, scope: str = "") -> Iterator[TracedEquation]:
    """Every step, also those in the bodies of loops and branches, which `flow` takes as one step each."""
    for step in flow(jaxpr).steps:
        yield step
        for value in step.equation.params.values():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, core.ClosedJaxpr):
                    yield from loops_and_all(each, step.scope)
