"""A measured call as a jaxpr, and evaluators that run jaxprs equation by equation with other arithmetic.

`Rounding` evaluates with randomised rounding, `verification.evaluate_wide` in double precision. Calls (`jit`, custom
derivatives, `remat`) are inlined and so is the branch that is taken; bodies of loops are traced again by the same
rules.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.errors import NotMeasured
from benchax.measuring.program import as_reason
from benchax.measuring.timers.base import Subject
from benchax.program.evaluate import interpret, retrace
from benchax.program.jaxpr import every_equation, programs_of, solve_operands

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
    """Traces the eager function of `subject`; where calls change their arguments, the new state is among its results.

    Raises:
        NotMeasured: it cannot be traced, or it has parts that cannot run by other rules (callbacks with effects, custom
            kernels, references, programs for several devices).
    """
    arrays = subject.dynamic_leaves
    with as_reason("the function cannot be traced"):
        body: Any = subject.body(subject.program.eager)  # pyright: ignore[reportArgumentType]
        program, shapes = jax.make_jaxpr(lambda *values: body(list(values)), return_shape=True)(*arrays)
    for equation in every_equation(program):
        if equation.primitive.name in UNKNOWN:
            raise NotMeasured(f"{equation.primitive.name} runs only as it stands")
        if any(not hasattr(v.aval, "dtype") or "Ref" in type(v.aval).__name__ for v in equation.invars):
            raise NotMeasured("it changes references in place")
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
            operands = solve_operands(equation, operands)
        if programs := programs_of(equation):
            (program,) = programs
            return self.evaluate(program, operands)
        with as_reason(f"{name} cannot be evaluated"):
            return self.apply(equation, operands)

    def retrace(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the parameters; programs among them are traced again by these rules."""
        return retrace(params, self.evaluate, self.dtype)


def bind(equation: Any, operands: Arrays, params: Mapping[str, Any] | None = None) -> Arrays:
    """The results of the primitive of `equation`, which runs no function: calls have been inlined."""
    results = equation.primitive.bind(*operands, **(equation.params if params is None else params))
    return list(results) if equation.primitive.multiple_results else [results]


def with_dtypes(params: Mapping[str, Any], dtype: Callable[[Any], Any]) -> dict[str, Any]:
    """Parameters, the floating types among them (`new_dtype`, `preferred_element_type`) exchanged.

    A precision that was asked for belongs to the type that was asked for, and is left out.
    """
    is_type = {
        name: isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
        for name, value in params.items()
    }
    found = {n: dtype(np.dtype(v)) if is_type[n] and is_inexact(v) else v for n, v in params.items()}
    return found | ({"precision": None} if "precision" in found else {})


def is_inexact(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, np.inexact)


# ---- rounding noise --------------------------------------------------------------------------------------------------
#
# Measures how far rounding moves the result of a call: evaluates the call with every operation rounded by chance.
#
# Monte Carlo arithmetic (Parker 1997, UCLA CSD-970002; Denis, de Oliveira Castro & Petit 2016, ARITH 23): the spread of
# a few such runs shows the effect of all roundings on the result. It covers all cancellation, conditioning and
# branching, without any analysis. Two programs that compute the same in another order are two such runs.
#
# - Types of up to 16 bits are evaluated in float32 and rounded up or down by chance, in proportion (stochastic
#   rounding), so that what is exact stays exact. Two further runs round everything up, and everything down.
# - In wider types, each result is off by at most NOISE_ULPS units in the last place. Operations that only move
#   values (gather, max, sort, …) are exact.
# - Sums gather the error of their partial sums, u * sqrt(sum S_k²) for independent roundings (Higham, Accuracy and
#   Stability, 2nd ed., 4.2; Higham & Mary 2019, SIAM J. Sci. Comput. 41). Products of matrices and convolutions
#   gather the error of sqrt(n) terms, besides an error of each term.
# - Factorisations are backward stable (Higham, ch. 10 and 19; LAPACK Users' Guide, ch. 4): their input is off by
#   as many units of its largest entry. A sign or phase of eigenvectors and singular vectors is free: on request it
#   is drawn too.
#
# Noise comes from the bits of the values themselves, so that loops need not carry a state.


NOISE_ULPS = 4.0
"""Implementations of one elementary function differ by 1 to 4 of them; fused multiply-adds and reciprocals by less."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


EXACT = _names(
    "abs neg sign max min select_n clamp stop_gradient copy copy_p device_put optimization_barrier sharding_constraint "
    "reshape transpose broadcast_in_dim squeeze expand_dims slice dynamic_slice dynamic_update_slice pad rev "
    "concatenate gather scatter split sort top_k approx_top_k reduce_max reduce_min cummax cummin argmax argmin "
    "reduce_window_max reduce_window_min floor ceil round real imag conj complex iota is_finite nextafter "
    "bitcast_convert_type random_gamma pure_callback select_and_gather_add scatter-max scatter-min pvary"
)
FACTORISATIONS = _names(
    "eigh eig svd cholesky lu geqrf geqp3 qr ormqr householder_product triangular_solve schur hessenberg tridiagonal "
    "tridiagonal_solve cholesky_update"
)
NORMWISE = ("fft",)
TERMWISE = ("dot_general", "conv_general_dilated", "reduce_window_sum", "scatter-add")


@dataclass
class Rounding:
    """One run. `direction` is 1 or -1 where all is rounded up or down, and 0 for roundings by chance."""

    seed: int
    direction: int = 0
    free_signs: bool = False
    """Draw the signs and phases of eigenvectors and singular vectors, too."""
    _operations: Any = field(default_factory=lambda: count(1))

    def run(self, call: TracedCall) -> list[Any]:
        """The flat results: of numbers as NumPy arrays.

        Raises:
            NotMeasured: an equation cannot be evaluated.
        """
        evaluator = Evaluator(lambda value: value, lambda dtype: dtype, self._apply)
        return jax.block_until_ready(evaluator.run(call))

    def _salt(self) -> np.uint32:
        return np.uint32((next(self._operations) * 0x9E3779B1 + self.seed * 0x85EBCA6B) % 2**32)

    def _apply(self, equation: Any, operands: Arrays) -> Arrays:
        name = equation.primitive.name
        if name in EXACT or not any(is_inexact(v.aval.dtype) for v in equation.outvars):
            return bind(equation, operands)
        if name == "convert_element_type" and _is_exact_conversion(equation):
            return bind(equation, operands)
        if name in FACTORISATIONS:
            operands = [self._off_by_norm(value) for value in operands]
            results = bind(equation, operands)
            free = _FREE.get(name) if self.free_signs else None
            return free(results, self._salt()) if free else results
        declared = [v.aval.dtype for v in equation.outvars]
        runs_programs = any(hasattr(value, "eqns") or hasattr(value, "jaxpr") for value in equation.params.values())
        if any(map(is_narrow, declared)) and not runs_programs:
            wide = [v.astype(np.float32) if is_narrow(getattr(v, "dtype", np.int32)) else v for v in operands]
            results = self._noisy(equation, wide, with_dtypes(equation.params, _single), 0.0)
            return [self._rounded(r, d) if is_narrow(d) else r for r, d in zip(results, declared, strict=True)]
        return self._noisy(equation, operands, equation.params, NOISE_ULPS)

    def _noisy(self, equation: Any, operands: Arrays, params: Any, ulps: float) -> Arrays:
        name = equation.primitive.name
        if name in TERMWISE:
            share = math.sqrt(_terms(equation))
            operands = [self._off_by_ulps(value, share / 2) for value in operands]
            ulps = max(ulps, share)
        results = bind(equation, operands, params)
        if name in _PARTIAL_SUMS:
            unit = _eps(equation.outvars[0].aval.dtype)  # of the accumulator
            off = _PARTIAL_SUMS[name](operands[0], equation.params, results[0]) * unit
            results = [_off_by(results[0], off, self._salt())]
        if name in NORMWISE:
            return [self._off_by_norm(result) for result in results]
        return [self._off_by_ulps(result, ulps) for result in results] if ulps else results

    def _off_by_ulps(self, value: Any, ulps: float) -> Any:
        return self._off(value, ulps, jnp.abs)

    def _off_by_norm(self, value: Any) -> Any:
        return self._off(value, NOISE_ULPS, lambda value: jnp.abs(value).max())

    def _off(self, value: Any, ulps: float, size: Callable[[Any], Any]) -> Any:
        """`value`, off by that many units in the last place of its `size`; what is not rounded stays as it is."""
        if not is_inexact(getattr(value, "dtype", np.int32)) or not np.size(value):
            return value
        return _off_by(value, size(value) * (ulps * _eps(value.dtype)), self._salt())

    def _rounded(self, value: Any, dtype: Any) -> Any:
        return _round_by_chance(value, self._salt(), np.float32(self.direction), dtype=np.dtype(dtype))


def is_narrow(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize <= 2


def _single(dtype: Any) -> Any:
    return np.dtype(np.float32) if is_narrow(dtype) else dtype


def _eps(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps)


def _is_exact_conversion(equation: Any) -> bool:
    given, made = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    if not is_inexact(given):
        return not is_narrow(made)
    # JAX promotes no type of 8 bits.
    is_promotable = given == made or all(np.dtype(dtype).itemsize > 1 for dtype in (given, made))
    return is_promotable and jnp.promote_types(given, made) == made


# ---- sums --------------------------------------------------------------------------------------------------------


def _terms(equation: Any) -> float:
    """How many terms each element of the result is a sum of."""
    name, params = equation.primitive.name, equation.params
    shapes = [v.aval.shape for v in equation.invars]
    if name == "dot_general":
        (contracted, _), _ = params["dimension_numbers"]
        return max(1, math.prod(shapes[0][axis] for axis in contracted))
    if name == "conv_general_dilated":
        return max(1, math.prod(shapes[1]) / max(1, shapes[1][params["dimension_numbers"].rhs_spec[0]]))
    if name == "reduce_window_sum":
        return max(1, math.prod(params["window_dimensions"]))
    return max(1, math.prod(shapes[-1]) / max(1, math.prod(shapes[0])))


def _of_sum(x: Any, params: Any, result: Any) -> Any:
    axes = params["axes"]
    rows = jnp.moveaxis(x, axes, tuple(range(x.ndim - len(axes), x.ndim))).reshape(*result.shape, -1)
    if not rows.shape[-1]:
        return jnp.abs(result)
    sums = jnp.abs(jnp.cumsum(rows, -1))
    largest = sums.max(-1, keepdims=True)  # squares of what is far from 1 would overflow
    return jnp.sqrt(((sums / jnp.where(largest > 0, largest, 1)) ** 2).sum(-1)) * largest[..., 0]


def _of_cumulative_sum(x: Any, params: Any, result: Any) -> Any:
    axis, reverse = params["axis"], params["reverse"]
    squares = jnp.abs(result) ** 2
    total = jnp.flip(jnp.cumsum(jnp.flip(squares, axis), axis), axis) if reverse else jnp.cumsum(squares, axis)
    return jnp.sqrt(total)


def _of_product(x: Any, params: Any, result: Any) -> Any:
    return jnp.abs(result) * math.sqrt(max(1.0, x.size / max(1, result.size)))


def _of_cumulative_product(x: Any, params: Any, result: Any) -> Any:
    return jnp.abs(result) * math.sqrt(x.shape[params["axis"]])


_PARTIAL_SUMS = {
    "reduce_sum": _of_sum,
    "cumsum": _of_cumulative_sum,
    "reduce_prod": _of_product,
    "cumprod": _of_cumulative_product,
    "cumlogsumexp": _of_cumulative_product,
}

# ---- noise -------------------------------------------------------------------------------------------------------


def _hash(bits: Any, salt: Any) -> Any:
    """Numbers in (-1, 1): the finaliser of MurmurHash3 (Appleby)."""
    h = bits * np.uint32(0x9E3779B1) + salt
    h = (h ^ (h >> 16)) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> 13)) * np.uint32(0xC2B2AE35)
    return ((h ^ (h >> 16)) >> 8).astype(np.float32) * np.float32(2.0**-23) - 1


def _bits(x: Any) -> Any:
    return jax.lax.bitcast_convert_type(x.astype(np.float32), np.uint32)


@jax.jit
def _off_by(value: Any, most: Any, salt: Any) -> Any:
    """`value`, off by at most `most`. Infinities and NaN stay."""
    if jax.dtypes.issubdtype(value.dtype, np.complexfloating):
        parts = (_off_by(value.real, most, salt), _off_by(value.imag, most, salt + np.uint32(77)))
        return jax.lax.complex(*parts)
    most = jnp.where(jnp.isfinite(value), most, 0).astype(value.dtype)
    return value + most * _hash(_bits(value), salt).astype(value.dtype)


def _round(value: Any, salt: Any, direction: Any, dtype: Any) -> Any:
    """float32 to a narrow `dtype`: to a neighbour, with the odds of their distances, or to the upper or lower one.

    Equal values are rounded apart: the two directed runs stand for errors that are alike.
    """
    info = jnp.finfo(dtype)
    power = jax.lax.bitcast_convert_type(_bits(value) & np.uint32(0x7F800000), np.float32)
    spacing = jnp.maximum(power, np.float32(2.0**info.minexp)) * np.float32(2.0**-info.nmant)
    place = jax.lax.iota(np.uint32, value.size).reshape(value.shape) * np.uint32(0x27D4EB2F)
    chance = jnp.where(direction == 0, _hash(_bits(value) ^ place, salt), direction)
    moved = value + spacing * chance * np.float32(0.4999)
    # Below a power of two, neighbors are closer together, so from there only the power itself can be reached.
    moved = jnp.where(
        (jnp.abs(moved) < power) & (power >= np.float32(2.0**info.minexp)), jnp.sign(value) * power, moved
    )
    return jnp.where(jnp.isfinite(value), moved, value).astype(dtype)


_round_by_chance = jax.jit(_round, static_argnames="dtype")


# ---- signs that are free -----------------------------------------------------------------------------------------


def _phases(shape: Sequence[int], dtype: Any, salt: Any) -> Any:
    angle = _hash(jnp.arange(math.prod(shape), dtype=np.uint32).reshape(shape), salt)
    if jax.dtypes.issubdtype(dtype, np.complexfloating):
        return jnp.exp(1j * np.pi * angle).astype(dtype)
    return jnp.where(angle < 0, -1, 1).astype(dtype)


def _of_eigh(results: Arrays, salt: Any) -> Arrays:
    vectors, *rest = results
    return [vectors * _phases((*vectors.shape[:-2], 1, vectors.shape[-1]), vectors.dtype, salt), *rest]


def _of_svd(results: Arrays, salt: Any) -> Arrays:
    if len(results) < 3:
        return results
    values, left, right = results
    n = values.shape[-1]
    phases = _phases((*left.shape[:-2], max(left.shape[-1], right.shape[-2])), left.dtype, salt)
    # Vectors beyond the singular values belong to no pair, and the phases of a pair cancel.
    beyond = jnp.where(jnp.arange(phases.shape[-1]) < n, 1, _phases(phases.shape, left.dtype, salt + np.uint32(1)))
    left = left * phases[..., None, : left.shape[-1]]
    return [values, left, right * (phases.conj() * beyond)[..., : right.shape[-2], None]]


def _of_eig(results: Arrays, salt: Any) -> Arrays:
    """The order of the eigenvalues is free, too."""
    values, *vectors = results
    order = jnp.argsort(_hash(jnp.arange(values.shape[-1], dtype=np.uint32), salt))
    turned = [v * _phases((*v.shape[:-2], 1, v.shape[-1]), v.dtype, salt + np.uint32(1)) for v in vectors]
    return [values[..., order], *(v[..., order] for v in turned)]


_FREE = {"eigh": _of_eigh, "svd": _of_svd, "eig": _of_eig}
SIGNS_ARE_FREE = frozenset(_FREE)
