"""What XLA folds into constants when it compiles a function alone: the kind of each value that depends on no input.

XLA folds an operation of constants, and one of a constant and of broadcast numbers or counters beside it; it never
folds iota, arrays of one number multiplied as matrices, loops, FFTs, linear algebra, random bits and calls of libraries
(xla/service/hlo_constant_folding.cc, and each seen in the optimised text: jax 0.10.2, CPU). Where this model is wrong,
a part of a function that depends on no input is computed too often or too seldom in a timing program:
`tests/clock/test_folding.py` holds the model beside XLA.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


class Kind(enum.IntEnum):
    """What XLA knows of a value when it compiles the function alone."""

    constant = 0
    uniform = 1
    """One constant number, broadcast."""
    spread = 2
    """A constant array, broadcast to a larger one."""
    counter = 3
    """`iota`: never stored, made anew wherever it is used."""
    computed = 4
    """It depends on the inputs, or on the reading of the clock."""


@dataclass(frozen=True)
class Value:
    """An array of the program that is traced, and its kind."""

    array: Any
    kind: Kind


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


NEVER_FOLDED = _names(
    "fft while scan optimization_barrier cholesky eig eigh qr householder_product geqrf geqp3 ormqr lu lu_solve "
    "triangular_solve tridiagonal tridiagonal_solve schur sylvester hessenberg svd symmetric_product "
    "random_bits random_split random_fold_in random_gamma threefry2x32 rng_bit_generator rng_uniform "
    "ffi_call pure_callback io_callback debug_callback pallas_call custom_call"
)
"""Primitives that XLA runs whatever it knows of their operands."""
LARGE = _names(
    "dot_general conv_general_dilated cumsum cumprod cummax cummin cumlogsumexp reduce_window_sum reduce_window_max "
    "reduce_window_min reduce_window pad"
)
"""Primitives that XLA folds of constants, and runs with broadcast numbers."""
NOT_BROADCAST = _names("concatenate dot_general conv_general_dilated gather dynamic_slice dynamic_update_slice")
"""Primitives whose operands may be smaller than the result and are used as they are."""
SHAPE = _names("broadcast_in_dim reshape squeeze expand_dims transpose copy")
"""A counter stays one."""
MOST_FOLDED = 45_000_000
"""Elements: XLA folds no larger arrays."""


def kind_of(eqn: Any, operands: list[Value]) -> Kind:
    """Of the results of one equation without programs of its own, were it compiled alone."""
    name, shape = eqn.primitive.name, getattr(eqn.outvars[0].aval, "shape", ()) if eqn.outvars else ()
    kinds = [_in_place(value, shape, name) for value in operands]
    if Kind.computed in kinds or name in NEVER_FOLDED or math.prod(shape) > MOST_FOLDED:
        return Kind.computed
    if not kinds:
        return Kind.counter if name == "iota" else Kind.computed
    if name == "broadcast_in_dim" and kinds == [Kind.constant]:
        return Kind.constant if math.prod(shape) == math.prod(operands[0].array.shape) else Kind.spread
    if name in SHAPE and len(kinds) == 1:
        return kinds[0]
    # Reductions begin with a constant, and one is enough for XLA to fold what is beside it.
    has_constant = Kind.constant in kinds or name.startswith(("reduce_", "argm"))
    if has_constant:
        return Kind.constant
    if name in LARGE or (name == "sort" and Kind.spread in kinds):
        return Kind.computed
    # Operations of broadcast numbers, and of one broadcast array with them, are done before broadcasting.
    others = [kind for kind in kinds if kind is not Kind.uniform]
    is_alone = len({id(v.array) for v, kind in zip(operands, kinds, strict=True) if kind is not Kind.uniform}) == 1
    if not others or (set(others) == {Kind.spread} and is_alone):
        return others[0] if others else Kind.uniform
    return Kind.computed


def _in_place(value: Value, shape: tuple[int, ...], name: str) -> Kind:
    """Operands of elementwise operations are broadcast to the shape of the result."""
    own = getattr(value.array, "shape", ())
    if value.kind is not Kind.constant or own == shape or name in NOT_BROADCAST or name.startswith("scatter"):
        return value.kind
    if own == ():
        return Kind.uniform
    fits = len(own) == len(shape) and all(a in (1, b) for a, b in zip(own, shape, strict=True))
    return Kind.spread if fits else Kind.constant


def is_invariant(operands: Sequence[Value]) -> bool:
    """Whether none of them depends on the inputs."""
    return all(value.kind is not Kind.computed for value in operands)
