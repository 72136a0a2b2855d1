"""Checks, before any timing, that the compiled function computes the same as the eager one.

A benchmark without this check could time garbage: XLA:CPU of jaxlib 0.10.2 returns wrong numbers for some reductions of
a matmul by a constant-filled array. The reference is the same Python function, run operation by operation. On request,
the call evaluated in float64 is a reference, too. Both start from the same state. Values that they change in place are
compared in the same way as outputs.

Nearly equal results need no explanation, and cost no more than the comparison. For other results, `jaxprs.Rounding`
measures the effect of rounding on this call, and `judge` says whether it explains the difference. The
result agrees, or it is wrong. Or it cannot be decided, because rounding alone changes the result as much.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import combinations, count
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.errors import NotMeasured
from benchax.measuring.jaxprs import (
    SIGNS_ARE_FREE,
    Arrays,
    Evaluator,
    Rounding,
    TracedCall,
    bind,
    is_inexact,
    is_narrow,
    trace_call,
    with_dtypes,
)
from benchax.measuring.program import as_reason
from benchax.measuring.record import Notes
from benchax.measuring.state import CallOutcome, data_of, is_key, is_same
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
from benchax.program.jaxpr import every_equation
from benchax.static_leaves import drop

# ---- rounding verdicts -----------------------------------------------------------------------------------------------
#
# Does rounding explain a difference between two results of one function? The spread of runs rounded by chance decides.
#
# The allowed difference is the spread of the runs of `jaxprs.Rounding`, in two norms at once. The root mean square
# over a leaf finds small errors everywhere. The maximum finds errors in one place.
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
        names = [leaf.path for leaf in undecided]
        if not all(name.startswith(_STATE) for name in names):
            what = f"leaf {names[0]}" if names[0] else "the output"
            raise _undecided(notes, f"benchax can't decide whether {what} is right: {undecided[0].undecided}")
        # Adam divides a gradient by its size, so a gradient that is zero except for rounding makes a full step.
        notes.undetermined += [name for name in names if name not in notes.undetermined]
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
