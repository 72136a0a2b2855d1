"""Arrays that are not arguments: those that a function closes over, and those that the compiled program holds.

The two differ. XLA folds: for `a + W.sum(0)` the jaxpr holds W, and the program holds the sums. XLA also adds constants
that it needs itself. A captured array goes into the program once per compilation, makes the text of the program long,
and costs a copy.

Captured arrays are in the jaxpr and in every jaxpr nested in it (an inner `jax.jit` keeps its own). An array that is
used in two places counts once. From jax 0.10 on, small ones become literals inside the equations: scalars are not
listed.
"""

from __future__ import annotations

import jax

from benchax.program import hlo, hlo_module
from benchax.program.hlo_module import Module
from benchax.program.index import Value, index
from benchax.results.inspection import Constant


def find_captured(traced: jax.stages.Traced) -> tuple[Constant, ...]:
    """Returns the arrays that the function closes over, each once, largest first."""
    values = [
        value for value in index(traced.jaxpr).consts if hasattr(value.const, "shape") and value.dtype is not None
    ]
    found = [Constant(value.spec, value.size_bytes, _first_use(value)) for value in values]
    return tuple(sorted(found, key=lambda constant: -constant.size_bytes))


def _first_use(value: Value) -> str:
    """The first operation that reads it, and the user's line of it."""
    return f"{value.readers[0].name}{value.readers[0].at}" if value.readers else ""


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
