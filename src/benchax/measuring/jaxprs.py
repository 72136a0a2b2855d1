"""A measured call as a jaxpr, and an evaluator that runs jaxprs equation by equation with other arithmetic.

`verification.py` evaluates in double precision, `rounding_noise.py` with randomised rounding. Calls (`jit`, custom
derivatives, `remat`) are inlined and so is the branch that is taken; bodies of loops are traced again by the same
rules.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend import core

from benchax.errors import NotMeasured
from benchax.measuring.inputs import without_static
from benchax.measuring.timers.base import Subject
from benchax.program.evaluate import interpret
from benchax.program.jaxpr import every_equation, open_program, programs_of

Arrays = list[Any]

LOOPS = ("scan", "while", "cond")
PRINTING = ("debug_callback", "debug_print")
"""They return nothing, and a user does not expect them a second time."""
UNKNOWN = ("io_callback", "ffi_call", "custom_call", "pallas_call", "shard_map", "xla_pmap", "run_state")
"""Primitives that cannot be run by other rules, or not without being noticed."""


@dataclass(frozen=True)
class TracedCall:
    """A program, the arrays that it was called with, and the tree that its results make up."""

    program: Any
    arrays: Arrays
    out_tree: Any


def trace_call(subject: Subject) -> TracedCall:
    """Returns the call of `subject` as it was traced for compiling, or else its eager function, traced here.

    Raises:
        NotMeasured: it cannot be traced, or it has parts that cannot run by other rules (callbacks with effects, custom
            kernels, references, programs for several devices).
    """
    try:
        found = _traced_to_compile(subject) or _trace_here(subject)
    except Exception as error:
        raise NotMeasured(f"the function cannot be traced ({_first_line(error)})") from error
    if len(found.arrays) != len(found.program.jaxpr.invars):
        raise NotMeasured("what is traced has other inputs than the call")
    for equation in every_equation(found.program):
        if equation.primitive.name in UNKNOWN:
            raise NotMeasured(f"{equation.primitive.name} runs only as it stands")
        if any(not hasattr(v.aval, "dtype") or "Ref" in type(v.aval).__name__ for v in equation.invars):
            raise NotMeasured("it changes references in place")
    return found


def _traced_to_compile(subject: Subject) -> TracedCall | None:
    """None if calls change their arguments, or if it is a wrapper that was traced."""
    if subject.program.kind not in ("plain", "jit") or subject.inputs.is_stateful:
        return None
    args, kwargs = subject.calls(1)[0]
    traced = subject.program.call.trace(*args, **kwargs)  # cached since it was built
    arrays = jax.tree.leaves(without_static(args, kwargs, subject.static))
    return TracedCall(traced.jaxpr, arrays, jax.tree.structure(traced.out_info))


def _trace_here(subject: Subject) -> TracedCall:
    """The eager function, with the new state among its results where calls change their arguments."""
    body: Any = subject.body(subject.program.eager)  # pyright: ignore[reportArgumentType]
    arrays = subject.dynamic_leaves
    program, shapes = jax.make_jaxpr(lambda *values: body(list(values)), return_shape=True)(*arrays)
    return TracedCall(program, arrays, jax.tree.structure(shapes))


@dataclass(frozen=True)
class Evaluator:
    """Runs programs by its own rules.

    `enter` takes in inputs and constants, `dtype` says what values of a declared dtype are here, and `apply` gives the
    results of an equation that runs no program.
    """

    enter: Callable[[Any], Any]
    dtype: Callable[[Any], Any]
    apply: Callable[[Any, Arrays], Arrays]

    def run(self, call: TracedCall) -> Arrays:
        """The results of a call, flat.

        Raises:
            NotMeasured: an equation cannot be evaluated.
        """
        return self.evaluate(call.program, [self.enter(array) for array in call.arrays])

    def evaluate(self, program: Any, arguments: Arrays) -> Arrays:
        return interpret(program, arguments, self._results, self._number, self.enter)

    def _number(self, literal: Any) -> Any:
        dtype: Any = getattr(literal.aval, "dtype", None)
        return literal.val if dtype in (None, jax.dtypes.float0) else np.asarray(literal.val, self.dtype(dtype))

    def _results(self, equation: Any, operands: Arrays) -> Arrays:
        name = equation.primitive.name
        if name in PRINTING:
            return []
        if name == "cond" and not isinstance(operands[0], Tracer):
            branches = equation.params["branches"]
            return self.evaluate(branches[min(max(int(operands[0]), 0), len(branches) - 1)], operands[1:])
        if name in LOOPS:
            return bind(equation, operands, self.retrace(equation.params))
        if name == "custom_linear_solve":
            operands = _of_solve(equation, operands)
        if programs := programs_of(equation):
            (program,) = programs
            return self.evaluate(program, operands)
        try:
            return self.apply(equation, operands)
        except NotMeasured:
            raise
        except Exception as error:
            raise NotMeasured(f"{name} cannot be evaluated ({_first_line(error)})") from error

    def retrace(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters; programs among them are traced again by these rules."""
        return {name: jax.tree.map(self._retraced, value, is_leaf=is_program) for name, value in params.items()}

    def _retraced(self, value: Any) -> Any:
        if not is_program(value):
            return value
        jaxpr, _ = open_program(value)
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, self.dtype(v.aval.dtype)) for v in jaxpr.invars]
        found = jax.make_jaxpr(lambda *arguments: self.evaluate(value, list(arguments)))(*shapes)
        if isinstance(value, core.ClosedJaxpr):
            return found
        if found.consts:
            raise NotMeasured("an inner program holds constants")
        return found.jaxpr


def is_program(value: Any) -> bool:
    return isinstance(value, (core.Jaxpr, core.ClosedJaxpr))


def _of_solve(equation: Any, operands: Arrays) -> Arrays:
    """The operands of the program that solves: the others serve derivatives only."""
    matvec, vecmat, solve, transposed = (length or 0 for length in equation.params["const_lengths"])
    first = matvec + vecmat
    return [*operands[first : first + solve], *operands[first + solve + transposed :]]


def bind(equation: Any, operands: Arrays, params: Mapping[str, Any] | None = None) -> Arrays:
    """The results of the primitive of `equation`, which runs no function: calls have been inlined."""
    results = equation.primitive.bind(*operands, **(equation.params if params is None else params))
    return list(results) if equation.primitive.multiple_results else [results]


def with_dtypes(params: Mapping[str, Any], dtype: Callable[[Any], Any]) -> dict[str, Any]:
    """Parameters, the floating types among them (`new_dtype`, `preferred_element_type`) exchanged.

    A precision that was asked for belongs to the type that was asked for, and is left out.
    """
    found = {name: dtype(np.dtype(value)) if _is_float_type(value) else value for name, value in params.items()}
    return found | ({"precision": None} if "precision" in found else {})


def _is_float_type(value: Any) -> bool:
    is_type = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
    return is_type and is_inexact(value)


def is_inexact(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, np.inexact)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
