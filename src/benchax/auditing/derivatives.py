"""Whole derivatives in a traced program: an identity matrix whose rows are pushed through as directions.

`jax.jacfwd`, `jax.jacrev` and `jax.hessian` make the identity, and so does a hand-written `jax.vmap` of a `jax.jvp`. A
direction enters every operation of a derivative linearly. A point at which a function is evaluated does not, even if
it is a row of an identity matrix too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import jax.numpy as jnp

from benchax.program.index import KEEPS, Body, TracedOp, Value
from benchax.program.jaxpr import names
from benchax.program.patterns import identity_axes

MOVES = {*KEEPS, "convert_element_type", "neg", "split"}
"""Operations that can come between an identity and a derivative, or between its last operation and its reader."""
FORWARD, REVERSE = "vmap(jvp(", "vmap(transpose("
"""How the scope of a derivative along many directions begins, seen from its identity."""
MAKERS = ("hessian", "jacfwd", "jacrev", "jacobian")
"""Functions of JAX that make whole derivatives."""
LINEAR = names(
    "add add_any broadcast_in_dim complex concatenate conj convert_element_type copy copy_p cumsum expand_dims fft imag"
    " neg pad psum real reduce_precision reduce_sum reduce_window_sum reshape rev sharding_constraint slice split "
    "squeeze stack sub tile transpose unstack optimization_barrier name"
)
"""Operations that are linear in all operands together."""
LINEAR_IN_ONE = frozenset(("mul", "dot_general", "conv_general_dilated"))
"""Operations that are linear in one operand if the other does not depend on it."""
LINEAR_IN = {
    "div": {0}, "dynamic_slice": {0}, "dynamic_update_slice": {0, 1}, "gather": {0}, "scatter": {0, 2},
    "scatter-add": {0, 2}, "scatter-mul": {0}, "triangular_solve": {1}, "tridiagonal_solve": {3}, "select_n": {1, 2},
}  # fmt: skip
"""Operations that are linear in the operands at these positions."""


@dataclass(frozen=True)
class WholeDerivative:
    """A derivative along all rows of an identity."""

    basis: TracedOp
    directions: int
    is_forward: bool
    per_direction: int
    """Elements that come out of it for each direction."""
    work: float
    """Operations that depend on the directions."""


def bases(body: Body) -> list[TracedOp]:
    """Comparisons that make an identity matrix."""
    return [op for op in body.ops if op.name == "eq" and identity_axes(op.makes[0]) is not None]


def whole_derivatives(body: Body) -> Iterator[WholeDerivative]:
    """Derivatives that are linear in their directions as far as each operation shows."""
    yield from (found for basis in bases(body) if (found := _follow(body, basis)) is not None)


def _follow(body: Body, basis: TracedOp) -> WholeDerivative | None:
    waiting, inside = {basis.makes[0]}, set[Value]()
    """Values that the directions are in before the derivative, and in it."""
    exits, modes, work, rows = set[Value](), set[str](), 0.0, basis.makes[0].shape[0]
    around = basis.scope.rstrip(")")
    for op in body.ops:
        depends = [value in waiting or value in inside for value in op.reads]
        if not any(depends):
            continue
        # The scope of the operation, seen from that of the identity.
        here = op.scope.removeprefix(around).lstrip("/") if op.scope.startswith(around) else ""
        mode = next((mode for mode in (FORWARD, REVERSE) if here.startswith(mode)), None)
        if mode is not None:
            if not _is_linear(op, depends):
                return None
            modes |= {mode} if waiting.intersection(op.reads) else set()
            work += op.work
            # A loop also makes values that are the same along all directions.
            inside.update(value for value in op.makes if not op.bodies or rows in value.shape)
        elif op.name in MOVES and op.reads[0] in waiting:
            waiting.update(op.makes)
        else:
            exits |= inside.intersection(op.reads)
    exits |= inside.intersection(body.outputs)
    if len(modes) != 1 or not exits or not rows:
        return None
    return WholeDerivative(basis, rows, modes == {FORWARD}, sum(value.size for value in exits) // rows, work)


def _is_linear(op: TracedOp, depends: Sequence[bool]) -> bool:
    """Is it linear in what depends on the directions? A loop or branch of a derivative is."""
    positions = {i for i, one in enumerate(depends) if one}
    is_of_one = op.name in LINEAR_IN_ONE and len(positions) == 1
    return bool(op.bodies) or op.name in LINEAR or is_of_one or positions <= LINEAR_IN.get(op.name, set())


def count_vectors(matrix: Value) -> float | None:
    """How many vectors a matrix is multiplied with at most, in loops and solvers too; None if anything else reads
    it."""
    if matrix.is_output or not matrix.readers:
        return None
    total = 0.0
    for op in matrix.readers:
        inside = [value for value in matrix.inner if value.body.op is op]
        places = [i for i, read in enumerate(op.reads) if read is matrix]
        if op.name == "dot_general" and len(places) == 1:
            (contracted, batched), other = op.params["dimension_numbers"], op.reads[1 - places[0]]
            found = None if any(batched) else other.size // math.prod(matrix.shape[i] for i in contracted[places[0]])
        elif inside and (len(inside) == len(places) or op.name == "custom_linear_solve"):
            each = [(_most_trips(value.body), count_vectors(value)) for value in inside]
            found = None if any(n is None for _, n in each) else sum(trips * (n or 0) for trips, n in each)
        else:
            found = None
        if found is None:
            return None
        total += found
    return total


def _most_trips(body: Body) -> float:
    """Iterations of a loop at most. A `while` can go on as long as a count in its carry is below a constant."""
    if body.kind != "while" or body.op is None:
        return body.trips or 1
    below = [op.reads for op in body.op.bodies[1].ops if op.name == "lt" and op.reads[0].is_of(jnp.integer)]
    return min((bound.number for _, bound in below if bound.number is not None), default=math.inf)
