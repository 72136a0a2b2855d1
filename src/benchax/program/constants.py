"""Arrays that are no arguments: those that a function closes over, and those that the compiled program holds.

The two differ. XLA folds: of `a + W.sum(0)` the jaxpr holds W, the program the sums. And it adds what it needs itself.
What is captured goes into the program once per compilation, makes the text of the program long, and costs a copy.

Captured arrays stand in the jaxpr and in every jaxpr nested in it (an inner `jax.jit` keeps its own); one that is used
in two places is one. From jax 0.10 on small ones become literals inside the equations: scalars are not listed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax

from benchax.program import arguments, hlo, hlo_module, jaxpr
from benchax.program.hlo_module import Module
from benchax.results.inspection import Constant


def find_captured(traced: jax.stages.Traced) -> tuple[Constant, ...]:
    """What the function closes over, each array once, largest first."""
    found: dict[int, Constant] = {}
    for value, where in _walk_captured(traced.jaxpr):
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            size = arguments.size_bytes(value.shape, value.dtype)
            # By identity: to compare values would copy arrays that may be large from their device.
            found.setdefault(id(value), Constant(arguments.spec(value.shape, value.dtype), size, where))
    return tuple(sorted(found.values(), key=lambda c: -c.size_bytes))


def _walk_captured(closed: Any) -> Iterator[tuple[Any, str]]:
    """(array, where it is first used), nested jaxprs included."""
    for variable, value in zip(closed.jaxpr.constvars, closed.consts, strict=False):
        yield value, _first_use(closed.jaxpr, variable)
    for each in jaxpr.equations(closed):
        for nested in jaxpr.nested_in(each.equation):
            if hasattr(nested, "consts") and hasattr(nested, "jaxpr"):
                for variable, value in zip(nested.jaxpr.constvars, nested.consts, strict=False):
                    yield value, _first_use(nested.jaxpr, variable)


def _first_use(open_jaxpr: Any, variable: Any) -> str:
    """The user's line of the first equation that reads it, and the operation."""
    for equation in open_jaxpr.eqns:
        if any(read is variable for read in equation.invars):
            line = jaxpr.user_line(equation)
            name = equation.primitive.name
            return f"{name} at {line}" if line else name
    return ""


def baked_in(module: Module) -> tuple[Constant, ...]:
    """The constants of the optimised program, the scalars that every program has included; largest first."""
    listed = [
        Constant(_spec(each.shape), hlo.shape_bytes(each.shape), " ".join(filter(None, (each.name, where))))
        for computation in module.computations.values()
        for each in computation.instructions
        if each.opcode == "constant"
        for where in (hlo_module.op_name(each),)
    ]
    return tuple(sorted(listed, key=lambda c: -c.size_bytes))


def _spec(shape: str) -> str:
    """The shape without its layout."""
    return shape.partition("{")[0]
