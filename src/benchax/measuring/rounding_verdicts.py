"""Does rounding explain a difference between two results of one function? The spread of runs rounded by chance decides.

The allowed difference is the spread of the runs of `rounding_noise.py`, in two norms at once. The root mean square over
a leaf finds small errors everywhere. The maximum finds errors in one place.

A factor multiplies the spread. It follows from the number of runs and of elements that vary on their own. With one
independent number, it is about 12 for 8 runs and 68 for 4 runs; with hundreds it is near 1. It is the square root of
the quantile of the F distribution that a correct result exceeds once in 100 000 times. The number of independent
elements is 1 / mean cos² of the angles between differences of disjoint pairs of runs. This is n for n independent
elements, and 1 for a common factor.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np

from benchax.numerics import LeafComparison, as_doubles

QUICK_ULPS, QUICK_SHARE = 16.0, 2.0**-19
"""Differences below both, as a share of the largest value, need no explanation (2e-6 in float32)."""
WEAK = 0.05
"""Beyond this share of the largest value, agreement proves little: the result is not called right either."""
_RARE = 1e-5
"""An honest result is called wrong this often."""

State = Literal["agrees", "differs", "undecided"]
Alignment = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class RoundingSpread:
    """A leaf in runs that were rounded by chance, and in the two that were rounded up and down."""

    runs: Sequence[Any]
    directed: Sequence[Any] = ()


@dataclass(frozen=True)
class LeafVerdict:
    state: State
    allowed: float = 0.0
    """The share of the reference's largest value that rounding explains."""
    why: str = ""
    """Why it is undecided; or what differs, where the largest difference is not what decided."""
    compiled: Any = None
    """The compiled leaf as it was judged, where its columns or rows were turned to the signs of the reference."""


def judge(leaf: LeafComparison, spread: RoundingSpread, reference_error: Any = None) -> LeafVerdict:
    """Whether `spread` explains the difference of a leaf.

    Args:
        reference_error: the leaf as the eager function gave it, where the reference was made in another way (float64):
            by as much again as eager is off, the compiled one may be off, too.
    """
    a = leaf.compiled
    every = [np.asarray(run) for run in (*spread.runs, *spread.directed)]
    if any(run.shape != a.shape for run in every):
        return LeafVerdict("undecided", why="its shape depends on rounding")
    beside = every if reference_error is None else [*every, np.asarray(reference_error)]
    if all(_same(run, beside[0]) for run in every) and (_is_exact(a) or leaf.numerics.nonfinite):
        return LeafVerdict("differs")
    if leaf.numerics.nonfinite:
        return _nonfinite(beside)
    with np.errstate(all="ignore"):
        return _judge(leaf, spread, reference_error, lambda x, reference: x)


def judge_with_free_signs(
    leaf: LeafComparison, plain: RoundingSpread, free: RoundingSpread, reference_error: Any = None
) -> LeafVerdict:
    """As `judge`, for runs of `free`, in which the signs of eigenvectors and singular vectors were drawn by chance.

    Differences that they explain are judged again, after each column, or row, is turned by the sign or phase that
    brings it nearest.
    """
    found = judge(leaf, free, reference_error)
    if found.state != "undecided" or leaf.numerics.nonfinite or leaf.compiled.ndim < 2 or _is_exact(leaf.compiled):
        return found
    with np.errstate(all="ignore"):
        turned = [
            replace(
                _judge(leaf, spread, reference_error, align),
                compiled=align(leaf.compiled, leaf.reference).astype(leaf.compiled.dtype),
            )
            for spread in (plain, free)
            for align in (partial(_turned, axis=-2), partial(_turned, axis=-1))
        ]
    agreeing = [verdict for verdict in turned if verdict.state == "agrees"]
    best = agreeing[0] if agreeing else min(turned[2:], key=lambda verdict: verdict.allowed)
    return best if agreeing or best.allowed < WEAK else found


def _nonfinite(runs: Sequence[np.ndarray]) -> LeafVerdict:
    patterns = [np.isfinite(run) for run in runs]
    if all(np.array_equal(pattern, patterns[0]) for pattern in patterns):
        return LeafVerdict("differs")
    return LeafVerdict("undecided", why="rounding alone decides which of its values are finite")


def _judge(leaf: LeafComparison, spread: RoundingSpread, reference_error: Any, align: Alignment) -> LeafVerdict:
    reference = np.asarray(leaf.reference)
    compiled, *rest = (_flat(align(np.asarray(x), reference)) for x in (leaf.compiled, *spread.runs, *spread.directed))
    runs, directed, base = rest[: len(spread.runs)], rest[len(spread.runs) :], _flat(reference)
    eager = base if reference_error is None else _flat(align(np.asarray(reference_error), reference))
    finite = np.all([np.isfinite(x) for x in (compiled, base, eager, *rest)], axis=0)
    known = np.isfinite(compiled) & np.isfinite(base)
    if (known & ~finite).any():
        return LeafVerdict("undecided", math.inf, "rounding alone decides which of its values are finite")
    compiled, base, eager = compiled[finite], base[finite], eager[finite]
    runs, directed = [x[finite] for x in runs], [x[finite] for x in directed]
    scale = _most(base)
    permitted = [_permitted(norm, runs, directed, base, eager, leaf) for norm in (_most, _rms)]
    measured = [norm(compiled - base) for norm in (_most, _rms)]
    share = permitted[0] / scale if scale else math.inf
    if measured[0] > permitted[0]:
        return LeafVerdict("differs", share)
    if measured[1] > permitted[1]:
        root = _rms(base) or 1.0
        far, allowed = measured[1] / root, permitted[1] / root
        return LeafVerdict(
            "differs", share, f"root mean square difference {far:.1e} of the reference's; allowed {allowed:.1e}"
        )
    if measured[0] > max(WEAK, 2 * _eps(leaf)) * scale:
        return LeafVerdict(
            "undecided", share, f"it differs by {_times(measured[0], scale)}, and by as much by rounding alone"
        )
    return LeafVerdict("agrees", share)


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
    return max(by_chance, half_width) + quick_bound(_eps(leaf)) * norm(base) + 2 * norm(eager - base)


def _factor(runs: Sequence[np.ndarray]) -> float:
    """Upon the spread of the runs: what an honest result exceeds once in 100 000 times."""
    from scipy.special import fdtri  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    independent = _independent(runs)
    quantile = float(fdtri(independent, independent * (len(runs) - 1), 1 - _RARE))
    # The last factor, because one more result differs from the mean of the runs by its own scatter and by that of the
    # mean.
    return math.sqrt(quantile * (1 + 1 / len(runs)))


def _independent(runs: Sequence[np.ndarray]) -> float:
    """How many elements vary on their own, at least 1."""
    pairs = [runs[i] - runs[i + 1] for i in range(0, len(runs) - 1, 2)]
    pairs = [pair / size for pair in pairs if (size := float(np.linalg.norm(pair)))]
    squares = [float(np.dot(x, y)) ** 2 for x, y in combinations(pairs, 2)]
    return max(1.0, min(float(runs[0].size), 1 / float(np.mean(squares)))) if squares and any(squares) else 1.0


def quick_bound(eps: float) -> float:
    """The share of the largest value below which a difference needs no explanation; `eps` is that of the type."""
    return min(QUICK_ULPS * eps, QUICK_SHARE)


def _times(far: float, scale: float) -> str:
    if not scale:
        return f"{far:.1e} where the reference is zero throughout"
    share = far / scale
    return f"{100 * share:.0f} % of its largest value" if share < 10 else f"{share:.1e} times its largest value"


# ---- values ------------------------------------------------------------------------------------------------------


def _eps(leaf: LeafComparison) -> float:
    return 0.0 if _is_exact(leaf.compiled) else float(jnp.finfo(leaf.compiled.dtype).eps)


def _is_exact(x: np.ndarray) -> bool:
    return x.dtype.kind in "biu" or "int" in x.dtype.name


def _same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and a.tobytes() == b.tobytes()


def _flat(x: np.ndarray) -> np.ndarray:
    return as_doubles(x).ravel()


def _most(x: np.ndarray) -> float:
    return float(np.abs(x).max()) if x.size else 0.0


def _rms(x: np.ndarray) -> float:
    return float(np.linalg.norm(x)) / math.sqrt(max(1, x.size))


# ---- signs and phases --------------------------------------------------------------------------------------------


def _turned(x: np.ndarray, reference: np.ndarray, axis: int) -> np.ndarray:
    wide = np.complex128 if np.iscomplexobj(x) else np.float64
    x = x.astype(wide)
    along = (x.conj() * reference.astype(wide)).sum(axis, keepdims=True)
    size = np.abs(along)
    return x * np.where(size > 0, along / np.where(size > 0, size, 1), 1)
