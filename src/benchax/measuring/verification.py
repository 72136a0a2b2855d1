"""Checks, before any timing, that the compiled function computes the same as the eager one.

A benchmark without this check could time garbage: XLA:CPU of jaxlib 0.10.2 returns wrong numbers for some reductions of
a matmul by a constant-filled array. The reference is the same Python function, run operation by operation. On request,
the call evaluated in float64 is a reference, too. Both start from the same state. Values that they change in place are
compared in the same way as outputs.

Nearly equal results need no explanation, and cost no more than the comparison. For other results, `Rounding` measures
the effect of rounding on this call, and `judge` says whether it explains the difference. The result agrees, or it is
wrong. Or it cannot be decided, because rounding alone changes the result as much.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations, count
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from benchax.errors import NotMeasured
from benchax.measuring.program import as_reason
from benchax.measuring.record import Notes
from benchax.measuring.state import CallOutcome, is_same
from benchax.measuring.timers.base import Subject, refuse
from benchax.model import Numerics
from benchax.numerics import (
    Against,
    LeafComparison,
    as_doubles,
    compare_leaves,
    describe_nonfinite,
    tolerance,
    worst_of,
)
from benchax.program.evaluate import interpret, retrace
from benchax.program.jaxpr import every_equation, names, programs_of, solve_operands
from benchax.static_leaves import data_of, drop, is_key

# ---- jaxprs ----------------------------------------------------------------------------------------------------------
#
# A measured call as a jaxpr, and evaluators that run jaxprs equation by equation with other arithmetic.
#
# `Rounding` evaluates with randomised rounding, `evaluate_wide` in double precision. Calls (`jit`, custom derivatives,
# `remat`) are inlined and so is the branch that is taken; bodies of loops are traced again by the same rules.

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


EXACT = names(
    "abs neg sign max min select_n clamp stop_gradient copy copy_p device_put optimization_barrier sharding_constraint "
    "reshape transpose broadcast_in_dim squeeze expand_dims slice dynamic_slice dynamic_update_slice pad rev "
    "concatenate gather scatter split sort top_k approx_top_k reduce_max reduce_min cummax cummin argmax argmin "
    "reduce_window_max reduce_window_min floor ceil round real imag conj complex iota is_finite nextafter "
    "bitcast_convert_type random_gamma pure_callback select_and_gather_add scatter-max scatter-min pvary"
)
FACTORISATIONS = names(
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
            operands = [self._off(value, NOISE_ULPS, by_norm=True) for value in operands]
            results = bind(equation, operands)
            free = _FREE.get(name) if self.free_signs else None
            return free(results, self._salt()) if free else results
        declared = [v.aval.dtype for v in equation.outvars]
        runs_programs = any(hasattr(value, "eqns") or hasattr(value, "jaxpr") for value in equation.params.values())
        if any(map(is_narrow, declared)) and not runs_programs:
            wide = [v.astype(np.float32) if is_narrow(getattr(v, "dtype", np.int32)) else v for v in operands]
            results = self._noisy(equation, wide, with_dtypes(equation.params, _single), 0.0)
            up = np.float32(self.direction)
            return [
                _round_by_chance(r, self._salt(), up, dtype=np.dtype(d)) if is_narrow(d) else r
                for r, d in zip(results, declared, strict=True)
            ]
        return self._noisy(equation, operands, equation.params, NOISE_ULPS)

    def _noisy(self, equation: Any, operands: Arrays, params: Any, ulps: float) -> Arrays:
        name = equation.primitive.name
        if name in TERMWISE:
            share = math.sqrt(_terms(equation))
            operands = [self._off(value, share / 2) for value in operands]
            ulps = max(ulps, share)
        results = bind(equation, operands, params)
        if name in _PARTIAL_SUMS:
            unit = _eps(equation.outvars[0].aval.dtype)  # of the accumulator
            off = _PARTIAL_SUMS[name](operands[0], equation.params, results[0]) * unit
            results = [_off_by(results[0], off, self._salt())]
        if name in NORMWISE:
            return [self._off(result, NOISE_ULPS, by_norm=True) for result in results]
        return [self._off(result, ulps) for result in results] if ulps else results

    def _off(self, value: Any, ulps: float, by_norm: bool = False) -> Any:
        """`value`, off by that many units in the last place of itself, or of its largest element; what is not rounded
        stays as it is."""
        if not is_inexact(getattr(value, "dtype", np.int32)) or not np.size(value):
            return value
        size = jnp.abs(value).max() if by_norm else jnp.abs(value)
        return _off_by(value, size * (ulps * _eps(value.dtype)), self._salt())


def is_narrow(dtype: Any) -> bool:
    return jax.dtypes.issubdtype(dtype, np.floating) and np.dtype(dtype).itemsize <= 2


def _single(dtype: Any) -> Any:
    return np.dtype(np.float32) if is_narrow(dtype) else dtype


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
    return jnp.sqrt(jax.lax.cumsum(jnp.abs(result) ** 2, params["axis"], params["reverse"]))


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


# ---- rounding verdicts -----------------------------------------------------------------------------------------------
#
# Does rounding explain a difference between two results of one function? The spread of runs rounded by chance decides.
#
# The allowed difference is the spread of the runs of `Rounding`, in two norms at once. The root mean square over a
# leaf finds small errors everywhere. The maximum finds errors in one place.
#
# A factor multiplies the spread. It follows from the number of runs and of elements that vary on their own. With one
# independent number, it is about 12 for 8 runs and 68 for 4 runs; with hundreds it is near 1. It is the square root of
# the quantile of the F distribution that a correct result exceeds once in 100 000 times. The number of independent
# elements is 1 / mean cos² of the angles between differences of disjoint pairs of runs. This is n for n independent
# elements, and 1 for a common factor.


QUICK_ULPS, QUICK_SHARE = 16.0, 2.0**-19
"""Differences below both, as a share of the largest value, need no explanation (2e-6 in float32)."""
WEAK = 0.05
"""Beyond this share of the largest value, agreement proves little: the result is not called right either."""
_RARE = 1e-5
"""An honest result is called wrong this often."""

DECIDES_FINITE = "rounding alone decides which of its values are finite"


@dataclass(frozen=True)
class RoundingSpread:
    """A leaf in runs that were rounded by chance, and in the two that were rounded up and down."""

    runs: Sequence[Any]
    directed: Sequence[Any] = ()


def judge(leaf: LeafComparison, spread: RoundingSpread, reference_error: Any = None) -> LeafComparison:
    """Judges a leaf again: does `spread` explain its difference?

    Args:
        reference_error: the leaf as the eager function gave it, where the reference was made in another way (float64):
            by as much again as eager is off, the compiled one may be off, too.
    """
    every = [np.asarray(run) for run in (*spread.runs, *spread.directed)]
    if any(run.shape != leaf.compiled.shape for run in every):
        return replace(leaf, undecided="its shape depends on rounding")
    beside = every if reference_error is None else [*every, np.asarray(reference_error)]
    is_same = all(run.shape == beside[0].shape and run.tobytes() == beside[0].tobytes() for run in every)
    if is_same and (not is_inexact(leaf.compiled.dtype) or leaf.found.nonfinite):
        return leaf
    if leaf.found.nonfinite:
        patterns = [np.isfinite(run) for run in beside]
        is_same = all(np.array_equal(pattern, patterns[0]) for pattern in patterns)
        return leaf if is_same else replace(leaf, undecided=DECIDES_FINITE)
    return _judge(leaf, spread, reference_error)


@np.errstate(all="ignore")
def _judge(
    leaf: LeafComparison, spread: RoundingSpread, reference_error: Any, axis: int | None = None
) -> LeafComparison:
    """Judges by the two norms.

    Args:
        axis: columns (-2) or rows (-1) are first turned by the sign or phase that brings each nearest to the
            reference.
    """
    reference = np.asarray(leaf.reference)
    if axis is not None:
        leaf = leaf.turned(_turned(leaf.compiled, reference, axis).astype(leaf.compiled.dtype))
    every = (leaf.compiled, *spread.runs, *spread.directed)
    compiled, *rest = (_flat(_turned(np.asarray(x), reference, axis)) for x in every)
    runs, directed, base = rest[: len(spread.runs)], rest[len(spread.runs) :], _flat(reference)
    eager = base if reference_error is None else _flat(_turned(np.asarray(reference_error), reference, axis))
    finite = np.all([np.isfinite(x) for x in (compiled, base, eager, *rest)], axis=0)
    known = np.isfinite(compiled) & np.isfinite(base)
    if (known & ~finite).any():
        return replace(leaf, bound=math.inf, undecided=DECIDES_FINITE)
    compiled, base, eager = compiled[finite], base[finite], eager[finite]
    runs, directed = [x[finite] for x in runs], [x[finite] for x in directed]
    scale = _most(base)
    permitted = [_permitted(norm, runs, directed, base, eager, leaf) for norm in (_most, _rms)]
    measured = [norm(compiled - base) for norm in (_most, _rms)]
    share = permitted[0] / scale if scale else math.inf
    is_beyond = any(found > most for found, most in zip(measured, permitted, strict=True))
    beyond = undecided = ""
    # If rounding alone changes the values completely, as for vectors of a null space, the other sign proves nothing.
    if is_beyond and share >= 1 and measured[0] <= 2 * scale:
        undecided = f"it differs by {_times(measured[0], scale)}, and rounding alone gives completely different values"
    elif is_beyond and measured[0] <= permitted[0]:
        root = _rms(base) or 1.0
        far, allowed = measured[1] / root, permitted[1] / root
        beyond = f"root mean square difference {far:.1e} of the reference's; allowed {allowed:.1e}"
    elif not is_beyond and measured[0] > max(WEAK, 2 * _eps(leaf.compiled.dtype)) * scale:
        undecided = f"it differs by {_times(measured[0], scale)}, and by as much by rounding alone"
    agrees = not is_beyond and not undecided
    return replace(leaf, agrees=agrees, bound=share, beyond=beyond, undecided=undecided)


def _permitted(
    norm: Callable[[np.ndarray], float],
    runs: Sequence[np.ndarray],
    directed: Sequence[np.ndarray],
    base: np.ndarray,
    eager: np.ndarray,
    leaf: LeafComparison,
) -> float:
    centre = np.mean(runs, axis=0)
    away = [norm(run - centre) for run in runs]
    spread = math.sqrt(sum(x * x for x in away) / (len(runs) - 1)) if norm is _rms else max(away)
    by_chance = spread * _factor(runs)
    half_width = norm(directed[1] - directed[0]) / 2 if directed else 0.0
    return max(by_chance, half_width) + quick_bound(leaf.compiled.dtype) * norm(base) + 2 * norm(eager - base)


def _factor(runs: Sequence[np.ndarray]) -> float:
    """Upon the spread of the runs: what an honest result exceeds once in 100 000 times."""
    from scipy.special import fdtri  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    independent = _independent(runs)
    quantile = float(fdtri(independent, independent * (len(runs) - 1), 1 - _RARE))
    # The last factor: another result differs from the mean of the runs by its own scatter and by that of the mean.
    return math.sqrt(quantile * (1 + 1 / len(runs)))


def _independent(runs: Sequence[np.ndarray]) -> float:
    """How many elements vary on their own, at least 1."""
    pairs = [runs[i] - runs[i + 1] for i in range(0, len(runs) - 1, 2)]
    pairs = [pair / size for pair in pairs if (size := float(np.linalg.norm(pair)))]
    squares = [float(np.dot(x, y)) ** 2 for x, y in combinations(pairs, 2)]
    return max(1.0, min(float(runs[0].size), 1 / float(np.mean(squares)))) if squares and any(squares) else 1.0


def quick_bound(dtype: Any) -> float:
    """The share of the largest value below which a difference needs no explanation."""
    return min(QUICK_ULPS * _eps(dtype), QUICK_SHARE)


def _times(far: float, scale: float) -> str:
    if not scale:
        return f"{far:.1e} where the reference is zero throughout"
    share = far / scale
    return f"{100 * share:.0f} % of its largest value" if share < 10 else f"{share:.1e} times its largest value"


# ---- values ------------------------------------------------------------------------------------------------------


def _eps(dtype: Any) -> float:
    return float(jnp.finfo(dtype).eps) if is_inexact(dtype) else 0.0


def _flat(x: np.ndarray) -> np.ndarray:
    return as_doubles(x).ravel()


def _most(x: np.ndarray) -> float:
    return float(np.abs(x).max()) if x.size else 0.0


def _rms(x: np.ndarray) -> float:
    return float(np.linalg.norm(x)) / math.sqrt(max(1, x.size))


# ---- signs and phases --------------------------------------------------------------------------------------------


def _turned(x: np.ndarray, reference: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        return x
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    x = x.astype(wide)
    along = (x.conj() * reference.astype(wide)).sum(axis, keepdims=True)
    size = np.abs(along)
    return x * np.where(size > 0, along / np.where(size > 0, size, 1), 1)


# Evaluates a call in double precision, with the same random bits and the same integers.
#
# JAX's 64-bit mode would compute something else: it draws random numbers from 64 bits instead of 32, integer sums no
# longer wrap, and an `astype(float32)` in the function stays. So the call is traced unchanged. Its jaxpr is evaluated
# with every floating value in 64 bits and everything else as declared:
#
# - A conversion between floating types and `reduce_precision` do nothing. A conversion from integers gives doubles.
# - Some operations look at the bits of a float (`bitcast_convert_type`, which random numbers use), draw in its type
#   (`random_gamma`), or leave JAX (`pure_callback`). They take and return values of the declared type.
# - Kernels and foreign calls exist in one type only. They cannot be evaluated, and the result is not judged.

AS_DECLARED = ("bitcast_convert_type", "random_gamma", "pure_callback", "nextafter")
NOTHING = ("reduce_precision",)


def evaluate_wide(call: TracedCall) -> Any:
    """The outputs of `call` as a tree of NumPy arrays, with its floats in 64 bits; typed keys as they are.

    Raises:
        NotMeasured: an equation has no form in double precision.
    """
    with _x64():
        outputs = jax.block_until_ready(EVALUATOR.run(call))
        plain = [leaf if is_key(leaf) else np.asarray(leaf) for leaf in outputs]
    return jax.tree.unflatten(call.out_tree, plain)


def _wide(dtype: Any) -> Any:
    if not is_inexact(dtype):
        return dtype
    return np.dtype(np.complex128 if jax.dtypes.issubdtype(dtype, np.complexfloating) else np.float64)


def _widened(value: Any) -> Any:
    dtype = getattr(value, "dtype", None)
    return value.astype(_wide(dtype)) if dtype is not None and is_inexact(dtype) else value


def _apply(equation: Any, operands: Arrays) -> Arrays:
    name = equation.primitive.name
    if name in NOTHING:
        return operands
    if name in AS_DECLARED:
        given = [(value, v.aval.dtype) for value, v in zip(operands, equation.invars, strict=True)]
        declared = [value.astype(dtype) if is_inexact(dtype) else value for value, dtype in given]
        return [_widened(result) for result in bind(equation, declared)]
    if not any(is_inexact(v.aval.dtype) for v in (*equation.invars, *equation.outvars)):
        return bind(equation, operands)
    return bind(equation, operands, with_dtypes(EVALUATOR.retrace(equation.params), _wide))


EVALUATOR = Evaluator(_widened, _wide, _apply)


def _x64() -> AbstractContextManager[Any]:
    """JAX's 64-bit mode for a while. `jax.enable_x64` since 0.8, in `jax.experimental` before."""
    module = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    return module.enable_x64(True)


RUNS, LEAST_RUNS = 8, 4
ENOUGH_S = 30.0
"""After this many seconds of runs, LEAST_RUNS of them are enough."""
_STATE = ".state["
"""Begins the path of what a call has changed, in an `CallOutcome`."""


def verify(
    subject: Subject, mode: str, reference: Callable[[], Any] | None = None, notes: Notes | None = None
) -> Numerics:
    """Compares the outputs of `subject` with those of its eager function.

    Args:
        mode: "eager", or "float64" for a second comparison, with the call evaluated in 64 bits.
        reference: gives the eager outputs, where they are known without another call.
        notes: filled in.

    Raises:
        NotMeasured: there is no eager function, it cannot be run, or not in float64, or nothing is returned. Or the
            results differ by much, and rounding alone makes them differ by as much (`Notes.undecided`).
    """
    if subject.program.kind == "eager":
        raise NotMeasured("it is the eager function that others are compared with")
    notes = Notes() if notes is None else notes
    expected = _expected(subject, reference, notes)
    if not jax.tree.leaves((subject.outputs, expected)):
        raise NotMeasured("it returns nothing, so there is nothing to check")
    notes.nonfinite = describe_nonfinite(subject.outputs)
    roundings = _Roundings(subject)
    found = _compare(subject.outputs, expected, "eager", roundings, notes)
    if mode != "float64" or not found.agrees:
        return found
    try:
        wide = evaluate_wide(roundings.call)
    except NotMeasured as error:
        raise NotMeasured(f"it cannot be evaluated in float64: {error.problem}") from error
    return _compare(subject.outputs, wide, "float64", roundings, notes, expected)


def _expected(subject: Subject, reference: Callable[[], Any] | None, notes: Notes) -> Any:
    """Returns the outputs of the eager call. For a stateful call, it also returns the eager state of the values that
    the compiled call changes.
    """
    # Known outputs do not show what a stateful call leaves in its arguments, so run that one anyway.
    if reference is not None and not subject.inputs.is_stateful:
        return subject.program.hide(reference())
    refuse(
        (subject.impure, f"two traces of it differ, so that no other run of it is a reference: {subject.impure}"),
        (subject.program.eager is None, "there is no eager function behind it to compare with"),
    )
    ready = subject.ready(subject.program.eager)
    with as_reason("the eager call failed"):
        result = jax.block_until_ready(ready())
    outcome = ready.outcome(result)
    if not isinstance(outcome, CallOutcome):
        return outcome
    before, now = subject.inputs.parts.values, ready.state()
    besides = [name for name in now if name not in subject.outputs.state]
    notes.dropped += [name for name in besides if name not in before or not is_same(now[name], before[name])]
    return CallOutcome(outcome.outputs, {name: data_of(now[name]) for name in subject.outputs.state if name in now})


class _Roundings:
    """The effects of rounding on a call; measured at the first request."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.runs = cache(self._run)

    @cached_property
    def call(self) -> TracedCall:
        return trace_call(self._subject)

    @cached_property
    def has_free_signs(self) -> bool:
        return any(equation.primitive.name in SIGNS_ARE_FREE for equation in every_equation(self.call.program))

    @cached_property
    def directed(self) -> list[list[Any]]:
        """Rounded up and rounded down; only types of up to 16 bits can be."""
        outputs = (v.aval for equation in every_equation(self.call.program) for v in equation.outvars)
        narrow = any(is_narrow(getattr(aval, "dtype", np.int32)) for aval in outputs)
        return [Rounding(RUNS, direction).run(self.call) for direction in (1, -1)] if narrow else []

    def _run(self, free_signs: bool) -> list[list[Any]]:
        found, begin = [], perf_counter_ns()
        for seed in range(RUNS):
            found.append(Rounding(seed, free_signs=free_signs).run(self.call))
            if len(found) >= LEAST_RUNS and perf_counter_ns() - begin > ENOUGH_S * 1e9:
                break
        return found

    def spread(self, place: int, free_signs: bool) -> RoundingSpread:
        """How far the result of this place goes."""
        both = self.runs(free_signs), self.directed
        if any(place >= len(run) for runs in both for run in runs):
            raise NotMeasured("what is traced has other outputs than the call")
        return RoundingSpread(*([np.asarray(data_of(run[place])) for run in runs] for runs in both))


def _compare(
    outputs: Any, reference: Any, against: Against, roundings: _Roundings, notes: Notes, eager: Any = None
) -> Numerics:
    outputs, reference = drop(outputs), drop(reference)
    leaves = compare_leaves(outputs, reference, against=against, allowed=quick_bound)
    if isinstance(leaves, Numerics):
        return leaves
    numbers = count()  # a traced program has no result for None
    places = [-1 if leaf is None else next(numbers) for leaf in jax.tree.leaves(outputs, is_leaf=lambda x: x is None)]
    try:
        judged = [
            leaf if leaf.agrees or leaf.compiled is None else _explain(leaf, place, roundings, eager)
            for leaf, place in zip(leaves, places, strict=True)
        ]
    except NotMeasured as error:
        return _without_operations(leaves, against, error, notes)
    undecided, decided = ([leaf for leaf in judged if bool(leaf.undecided) is wanted] for wanted in (True, False))
    if undecided and all(leaf.agrees for leaf in decided):
        paths = [leaf.path for leaf in undecided]
        if not all(path.startswith(_STATE) for path in paths):
            what = f"leaf {paths[0]}" if paths[0] else "the output"
            raise _undecided(notes, f"benchax can't decide whether {what} is right: {undecided[0].undecided}")
        # Adam divides a gradient by its size, so a gradient that is zero except for rounding makes a full step.
        notes.undetermined += [path for path in paths if path not in notes.undetermined]
    return worst_of(decided, against)


def _explain(leaf: LeafComparison, place: int, roundings: _Roundings, eager: Any) -> LeafComparison:
    """Judges a leaf by the spread of runs. In further runs, the signs of eigenvectors and singular vectors are drawn by
    chance. If only these explain its difference, each column, or row, is turned to the sign or phase of the reference.
    """
    own_error = None if eager is None else np.asarray(data_of(jax.tree.leaves(eager)[place]))
    plain = roundings.spread(place, free_signs=False)
    found = judge(leaf, plain, own_error)
    if found.agrees or not roundings.has_free_signs:
        return found
    free = roundings.spread(place, free_signs=True)
    found = judge(leaf, free, own_error)
    if not found.undecided or leaf.found.nonfinite or leaf.compiled.ndim < 2 or not is_inexact(leaf.compiled.dtype):
        return found
    turned = [_judge(leaf, spread, own_error, axis) for spread in (plain, free) for axis in (-2, -1)]
    if agreeing := [each for each in turned if each.agrees]:
        return agreeing[0]
    best = min(turned[2:], key=lambda each: each.bound)
    return best if best.bound < WEAK else found


def _without_operations(leaves: list[LeafComparison], against: Against, error: NotMeasured, notes: Notes) -> Numerics:
    """Judges without rounding data: a result is wrong if fewer than half of the digits agree."""
    again = [_by_digits(leaf) for leaf in leaves]
    if not all(leaf.agrees for leaf in again):
        return worst_of(again, against)
    far = max(leaf.numerics.max_rel or 0.0 for leaf in leaves)
    problem = f"it differs by {far:.1e} of the largest value, and what rounding does is not known: {error.problem}"
    raise _undecided(notes, problem)


def _undecided(notes: Notes, problem: str) -> NotMeasured:
    notes.undecided = problem
    return NotMeasured(problem)


def _by_digits(leaf: LeafComparison) -> LeafComparison:
    if leaf.agrees or leaf.compiled is None or leaf.found.nonfinite or not leaf.bound:
        return leaf
    bound = tolerance(leaf.compiled.dtype)
    return replace(leaf, bound=bound, agrees=leaf.found.largest <= bound * leaf.found.scale)
