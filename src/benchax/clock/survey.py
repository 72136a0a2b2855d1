"""Examines a traced function: finds the loops that need a deadline, and the parts that no deadline can stop.

Loops on several devices cannot be stopped: each device would stop at a different time, and wait for the others forever.

A primitive that `program/jaxpr.py` does not know to run a program is left as it was, and named if it holds loops.

The time of a loop is estimated for any CPU, rather too long than too short, to find loops that end soon. Looking at the
clock in a loop of 3 µs would cost more than the loop. A loop that surely ends within SHORT_NS stays unchanged. Any
other loop first runs as many iterations as surely take no longer. Then it looks for the first time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend import core
from jax.interpreters import partial_eval

from benchax.program.jaxpr import every_equation, names, open_program, programs_of

LOOPS = ("while", "scan")
OPAQUE = {"ffi_call", "pure_callback", "io_callback", "pallas_call", "custom_call"}
"""One step for XLA, of any length."""
SPREAD = names(
    "shard_map xla_pmap psum psum2 psum_invariant pmax pmin ppermute pbroadcast all_to_all all_gather"
    " all_gather_invariant reduce_scatter psum_scatter ragged_all_to_all"
)
"""Primitives of programs for several devices."""
LONG_NS = 1e6
"""More than the few 0.1 ms by which stops are late anyway."""

SHORT_NS = 100_000.0
"""This is short in comparison with the 1 ms by which a stop can be late."""

OPERATION_NS, ELEMENT_NS, FLOP_NS = 10.0, 1.0, 0.25
"""One operation; one element that it reads or writes; a multiplication or addition in a matrix product."""
SLOW = 20
"""The factor on the time of an element, or of a FLOP. It holds for random bits, transcendental functions and indexing,
and for products of other types than f32 and f64."""

FAST = names(
    "broadcast_in_dim reshape squeeze transpose slice concatenate pad rev iota copy select_n convert_element_type"
    " dynamic_slice dynamic_update_slice split expand_dims bitcast_convert_type stop_gradient real imag complex stack"
    " unstack add sub mul div neg abs sign max min floor ceil round sqrt rsqrt square integer_pow is_finite clamp eq ne"
    " lt le gt ge and or xor not shift_left shift_right_logical shift_right_arithmetic conj reduce_sum reduce_max"
    " reduce_min reduce_prod reduce_and reduce_or reduce_xor"
)
"""Moves, arithmetic, and reductions."""
LINEAR_BUT_SLOW = names(
    "exp exp2 expm1 log log1p log2 sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh atan2 pow cbrt rem"
    " logistic erf erfc erf_inv nextafter population_count clz argmax argmin reduce_precision gather scatter"
    " scatter-add scatter_add scatter-mul scatter_mul scatter-min scatter_min scatter-max random_bits random_seed"
    " random_split random_fold_in random_wrap random_unwrap random_clone threefry2x32"
)
"""Transcendental functions, indexing, and random numbers."""


def alive(program: Any) -> Any:
    """A closed program without what its outputs do not need: XLA would not run that, unless it looks at the clock."""
    # Not documented by JAX. Without it such loops run, and nothing else is wrong.
    remove = getattr(partial_eval, "dce_jaxpr", None)
    if remove is None:
        return program
    needed, _ = remove(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
    return core.ClosedJaxpr(needed, program.consts)


def is_checked(eqn: Any) -> bool:
    """Whether `eqn` is rewritten: it is a loop that may take long, or holds one."""
    if eqn.primitive.name in LOOPS and not _is_one_step(eqn):
        return _has_arrays_only(eqn) and equation_ns(eqn) > SHORT_NS
    return any(has_checked(program) for program in programs_of(eqn))


def _is_one_step(eqn: Any) -> bool:
    """Whether a scan is unrolled so that one trip at most remains: it counts as no loop, here as for XLA."""
    if eqn.primitive.name != "scan":
        return False
    length, unroll = eqn.params["length"], eqn.params["unroll"]
    return unroll == 0 or length < 2 * unroll


def has_checked(program: Any) -> bool:
    return any(is_checked(eqn) for eqn in open_program(program)[0].eqns)


def is_long_without_loops(program: Any) -> bool:
    """Whether much may be left to do when all loops that are checked have stopped."""
    return _straight_ns(program) > LONG_NS


def _straight_ns(program: Any) -> float:
    return sum(
        sum(map(_straight_ns, programs_of(eqn))) if is_checked(eqn) else equation_ns(eqn)
        for eqn in open_program(program)[0].eqns
    )


def _has_arrays_only(eqn: Any) -> bool:
    """References (`jax.new_ref`) are changed in place; loops of ours cannot carry them."""
    return all(isinstance(v.aval, ShapedArray) for v in eqn.invars)


def is_spread(program: Any) -> bool:
    """Whether the program is one for several devices, as far as it says so itself."""
    return any(eqn.primitive.name in SPREAD or _devices(eqn) > 1 for eqn in every_equation(program))


def _devices(eqn: Any) -> int:
    """The number of devices that an equation asks for: `jit(in_shardings=…)`, `with_sharding_constraint`."""
    shardings = jax.tree.leaves([eqn.params.get(name) for name in ("sharding", "in_shardings", "out_shardings")])
    return max((s.num_devices for s in shardings if isinstance(s, jax.sharding.Sharding)), default=1)


def find_unchecked(program: Any) -> tuple[str, ...]:
    """The parts of a rewritten program that a deadline cannot stop: names of primitives, each once, sorted."""
    if is_spread(program):
        return tuple(sorted({*LOOPS, *OPAQUE, *SPREAD} & {eqn.primitive.name for eqn in every_equation(program)}))
    return tuple(sorted(set(_walk_unchecked(program))))


def _walk_unchecked(program: Any) -> Iterator[str]:
    for eqn in open_program(program)[0].eqns:
        name = eqn.primitive.name
        if name in OPAQUE:
            if not str(eqn.params.get("target_name", "")).startswith("benchax_"):
                yield name
        elif name in LOOPS and not _has_arrays_only(eqn):
            yield f"{name} over references"
        elif programs := programs_of(eqn):
            for inside in programs:
                yield from _walk_unchecked(inside)
        elif any(e.primitive.name in {*LOOPS, *OPAQUE} for e in every_equation(_alone(program, eqn)) if e is not eqn):
            yield name


def _alone(program: Any, eqn: Any) -> Any:
    return open_program(program)[0].replace(eqns=[eqn])


def program_ns(program: Any) -> float:
    """About how long a program takes at most; infinite if unknown."""
    return sum(equation_ns(eqn) for eqn in getattr(program, "jaxpr", program).eqns)


def equation_ns(eqn: Any) -> float:
    name = eqn.primitive.name
    inside = [program_ns(program) for program in programs_of(eqn)]
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
    """Operations of a matrix product, other types than f32 and f64 weighted by how much slower they can be."""
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left, out = eqn.invars[0].aval, eqn.outvars[0].aval
    flops = 2.0 * math.prod(out.shape) * math.prod(left.shape[axis] for axis in contracted)
    return flops if jax.dtypes.canonicalize_dtype(left.dtype) in (jnp.float32, jnp.float64) else flops * SLOW
