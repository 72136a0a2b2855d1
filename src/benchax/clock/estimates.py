"""About how long a traced program takes on any CPU, rather too long than too short: to tell loops that are over soon.

Looking at the clock in a loop of 3 µs would cost more than the loop. One that is surely over within SHORT_NS is left as
it is, and any other one first runs as many iterations as surely take no longer, before it looks for the first time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

SHORT_NS = 100_000.0
"""Small beside the 1 ms by which a stop may be late."""

OPERATION_NS, ELEMENT_NS, FLOP_NS = 10.0, 1.0, 0.25
"""One operation; one element that it reads or writes; a multiplication or addition in a matrix product."""
SLOW = 20
"""What random bits, transcendental functions, indexing, and products of other types than f32 and f64 take of that."""

MOVES = "broadcast_in_dim reshape squeeze transpose slice concatenate pad rev iota copy select_n convert_element_type"
MOVES += " dynamic_slice dynamic_update_slice split expand_dims bitcast_convert_type stop_gradient real imag complex"
MOVES += " stack unstack"
ARITHMETIC = "add sub mul div neg abs sign max min floor ceil round sqrt rsqrt square integer_pow is_finite clamp"
ARITHMETIC += " eq ne lt le gt ge and or xor not shift_left shift_right_logical shift_right_arithmetic conj"
REDUCTIONS = "reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor"
FAST = frozenset(f"{MOVES} {ARITHMETIC} {REDUCTIONS}".split())

FUNCTIONS = "exp exp2 expm1 log log1p log2 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 pow cbrt"
FUNCTIONS += " rem logistic erf erfc erf_inv nextafter population_count clz argmax argmin reduce_precision"
INDEXING = "gather scatter scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min scatter-max"
RANDOM = "random_bits random_seed random_split random_fold_in random_wrap random_unwrap random_clone threefry2x32"
LINEAR_BUT_SLOW = frozenset(f"{FUNCTIONS} {INDEXING} {RANDOM}".split())

Inner = Callable[[Any], list[Any]]
"""The programs that an equation runs."""


def program_ns(program: Any, inner: Inner) -> float:
    """About how long a program takes at most; infinite if nobody knows."""
    return sum(equation_ns(eqn, inner) for eqn in getattr(program, "jaxpr", program).eqns)


def equation_ns(eqn: Any, inner: Inner) -> float:
    name = eqn.primitive.name
    inside = [program_ns(program, inner) for program in inner(eqn)]
    if name == "scan":
        length = eqn.params["length"]
        return length * (OPERATION_NS + sum(inside)) if length else 0.0
    if name == "while":
        return math.inf
    if inside:
        return OPERATION_NS + (max(inside) if name == "cond" else sum(inside))
    if name == "dot_general":
        return OPERATION_NS + _elements(eqn) * ELEMENT_NS + _products(eqn) * FLOP_NS
    if name in FAST:
        return OPERATION_NS + _elements(eqn) * ELEMENT_NS
    return OPERATION_NS + _elements(eqn) * ELEMENT_NS * SLOW if name in LINEAR_BUT_SLOW else math.inf


def _elements(eqn: Any) -> float:
    return float(sum(math.prod(getattr(v.aval, "shape", ())) for v in (*eqn.invars, *eqn.outvars)))


def _products(eqn: Any) -> float:
    """Operations of a matrix product, other types than f32 and f64 weighted by how much slower they may be."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left, out = eqn.invars[0].aval, eqn.outvars[0].aval
    flops = 2.0 * math.prod(out.shape) * math.prod(left.shape[axis] for axis in contracted)
    return flops if jax.dtypes.canonicalize_dtype(left.dtype) in (jnp.float32, jnp.float64) else flops * SLOW
