"""Looks through a traced function: which loops need a deadline, which are over soon anyway, which cannot be stopped.

A loop of known length that takes less than about 20 µs by a rough and pessimistic estimate is left as it is: looking at
the clock in it would cost more than it lasts. What runs on several devices is left alone altogether: each would stop
at its own time, and wait for the others for ever.

The only place that knows which parameters of which primitives hold a program (tried on JAX 0.6.0 and 0.10.2). One that
is not found there is named as unchecked, like a custom call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend import core

SHORT_NS = 20_000.0
INNER: dict[str, tuple[str, ...]] = {
    "while": ("cond_jaxpr", "body_jaxpr"),
    "scan": ("jaxpr",),
    "cond": ("branches",),
    "jit": ("jaxpr",),
    "pjit": ("jaxpr",),
    "closed_call": ("call_jaxpr",),
    "core_closed_call": ("call_jaxpr",),
    "core_call": ("call_jaxpr",),
    "call": ("call_jaxpr",),
    "remat": ("jaxpr",),
    "remat2": ("jaxpr",),
    "checkpoint": ("jaxpr",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
    "custom_vjp_call_jaxpr": ("fun_jaxpr",),
    "custom_linear_solve": ("jaxprs",),
}
"""The programs inside a primitive that are rewritten: primitive, parameters."""
LOOPS = ("while", "scan")
OPAQUE = {"ffi_call", "pure_callback", "io_callback", "pallas_call", "custom_call", "xla_metadata_call"}
"""One step as XLA sees them, of any length."""
SPREAD = {"shard_map", "xla_pmap", "psum", "psum2", "pmax", "pmin", "ppermute", "all_gather", "all_to_all"}
SPREAD |= {"psum_scatter", "reduce_scatter", "psum_invariant", "all_gather_invariant", "pbroadcast", "ragged_all_to_all"}
"""Primitives of programs for several devices."""

OPERATION_NS = 10.0
ELEMENT_NS = 5.0
FLOP_NS = 0.25
"""What one operation, one element of it and one operation of a matrix product take at most, roughly, on any CPU."""
SUPERLINEAR = {"sort", "fft", "conv_general_dilated", "top_k", "approx_top_k", "reduce_window", "while", "linear_solve"}
RANDOM = {"random_bits", "random_seed", "random_split", "random_fold_in", "random_wrap", "random_unwrap", "threefry2x32"}
FREE = {"name", "copy_p", "pvary", "mesh_cast", "reshard"}


def open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """(the program, its constants), of an open or a closed one."""
    return (jaxpr.jaxpr, list(jaxpr.consts)) if isinstance(jaxpr, core.ClosedJaxpr) else (jaxpr, [])


def inner(eqn: Any) -> list[Any]:
    """The programs inside `eqn` that are run by it and can be rewritten."""
    found = [eqn.params[name] for name in INNER.get(eqn.primitive.name, ()) if name in eqn.params]
    if eqn.primitive.name == "custom_linear_solve":
        found = [jaxprs.solve for jaxprs in found]
    return [program for part in found for program in (part if isinstance(part, tuple) else (part,))]


def every_inner(eqn: Any) -> Iterator[Any]:
    """All programs in the parameters of `eqn`, known or not."""
    for leaf in jax.tree.leaves(list(eqn.params.values()), is_leaf=_is_program):
        if _is_program(leaf):
            yield leaf


def _is_program(value: Any) -> bool:
    return isinstance(value, (core.Jaxpr, core.ClosedJaxpr))


def equations(jaxpr: Any) -> Iterator[Any]:
    """Every equation of a program and of all that are inside it."""
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        yield eqn
        for program in every_inner(eqn):
            yield from equations(program)


def is_spread(jaxpr: Any) -> bool:
    """Whether the program is one of several devices, as far as it says so itself."""
    return any(eqn.primitive.name in SPREAD for eqn in equations(jaxpr))


def is_checked(eqn: Any) -> bool:
    """Whether `eqn` is rewritten: it is a loop that may take long, or holds one."""
    if eqn.primitive.name in LOOPS:
        return bool(inner(eqn)) and _has_arrays_only(eqn) and equation_ns(eqn) > SHORT_NS
    return any(has_checked(program) for program in inner(eqn))


def has_checked(jaxpr: Any) -> bool:
    return any(is_checked(eqn) for eqn in open_jaxpr(jaxpr)[0].eqns)


def _has_arrays_only(eqn: Any) -> bool:
    """References (`jax.new_ref`) are changed in place, and cannot be carried by a loop of ours."""
    return all(isinstance(v.aval, jax.core.ShapedArray) for v in eqn.invars)


def unchecked(jaxpr: Any) -> tuple[str, ...]:
    """What a deadline cannot stop inside a rewritten program: names of primitives, each once, sorted."""
    return tuple(sorted(set(_unchecked(jaxpr))))


def _unchecked(jaxpr: Any) -> Iterator[str]:
    for eqn in open_jaxpr(jaxpr)[0].eqns:
        name = eqn.primitive.name
        if name in OPAQUE:
            yield name
        elif name in LOOPS and not _has_arrays_only(eqn):
            yield f"{name} over references"
        elif programs := inner(eqn):
            for program in programs:
                yield from _unchecked(program)
        elif any(inside.primitive.name in {*LOOPS, *OPAQUE} for p in every_inner(eqn) for inside in equations(p)):
            yield name


def jaxpr_ns(jaxpr: Any) -> float:
    """About how long a program takes, rather too much; infinite if nobody knows."""
    return sum(equation_ns(eqn) for eqn in open_jaxpr(jaxpr)[0].eqns)


def equation_ns(eqn: Any) -> float:
    name = eqn.primitive.name
    if name == "scan":
        return eqn.params["length"] * (OPERATION_NS + jaxpr_ns(eqn.params["jaxpr"]))
    if name == "cond":
        return OPERATION_NS + max(jaxpr_ns(branch) for branch in inner(eqn))
    if name == "dot_general":
        return OPERATION_NS + _elements(eqn) * ELEMENT_NS + _dot_flops(eqn) * FLOP_NS
    if name in SUPERLINEAR:
        return math.inf
    if programs := inner(eqn):
        return sum(map(jaxpr_ns, programs))
    if name in RANDOM | FREE or hasattr(jax.lax, f"{name}_p"):
        return OPERATION_NS + _elements(eqn) * ELEMENT_NS * (10 if name in RANDOM else 1)
    return math.inf


def _elements(eqn: Any) -> float:
    return float(sum(math.prod(getattr(v.aval, "shape", ())) for v in (*eqn.invars, *eqn.outvars)))


def _dot_flops(eqn: Any) -> float:
    (contracted, _), _ = eqn.params["dimension_numbers"]
    left = eqn.invars[0].aval.shape
    return 2.0 * math.prod(eqn.outvars[0].aval.shape) * math.prod(left[axis] for axis in contracted)
