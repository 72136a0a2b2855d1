"""How far outputs are from those of a reference: the largest and the median relative error, overflows and NaNs.

The largest is norm-wise (the difference over the largest magnitude of its leaf), as in `numerics.py`; the median is of
elements, each by its own magnitude. Of leaves with more than 4 million elements every k-th one enters the median.
"""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from benchax.errors import NotMeasured
from benchax.measuring.timers.embedding import is_key
from benchax.results.experiment import Errors

MOST_IN_MEDIAN = 2**22
NUMBERS = jax.Array | np.ndarray | np.generic | int | float | complex


def leaves(tree: Any) -> dict[str, Any]:
    """Arrays and numbers, by path. Left out are typed keys, and what modules hold beside arrays, such as functions:
    wrappers like `equinox.filter_jit` return it as it came in."""
    found = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in found if isinstance(leaf, NUMBERS) and not is_key(leaf)}


def to_host(tree: Any) -> list[np.ndarray]:
    """The leaves, computed and copied."""
    return [np.asarray(leaf) for leaf in leaves(jax.block_until_ready(tree)).values()]


def measure_errors(outputs: Any, reference: list[np.ndarray], against: Literal["float64", "baseline"]) -> Errors:
    """How far `outputs` are from `reference`, over all leaves.

    Raises:
        NotMeasured: there is nothing to compare, or the outputs are built differently.
    """
    ours = to_host(outputs)
    if [a.shape for a in ours] != [b.shape for b in reference]:
        raise NotMeasured(f"its outputs have other shapes than those in {against}")
    if not ours:
        raise NotMeasured("it returns no numbers")
    with np.errstate(all="ignore"):  # overflow and NaN are what is looked for
        found = [_leaf(_doubles(a), _doubles(b)) for a, b in zip(ours, reference, strict=True)]
    largest = [worst for worst, *_ in found if worst is not None]
    relative = np.concatenate([each for _, each, *_ in found])
    return Errors(
        against,
        max_rel=max(largest, default=None),
        median_rel=float(np.median(relative)) if relative.size else None,
        overflows=sum(overflows for *_, overflows, _ in found),
        nans=sum(nans for *_, nans in found),
        worst=max(zip(leaves(outputs), found, strict=True), key=lambda pair: _badness(*pair[1]))[0],
    )


def _badness(worst: float | None, relative: np.ndarray, overflows: int, nans: int) -> tuple[int, float]:
    return overflows + nans, worst or 0.0


def _leaf(a: np.ndarray, b: np.ndarray) -> tuple[float | None, np.ndarray, int, int]:
    """(largest relative error, each element's, overflows, NaNs)"""
    finite = np.isfinite(a) & np.isfinite(b)
    distance = np.abs(np.where(finite, a - b, 0.0))
    scale = float(np.abs(b[np.isfinite(b)]).max(initial=0.0))
    worst = float(distance.max(initial=0.0))
    scale = scale or worst  # a reference of zeros: all of the output is error
    # Where nothing is finite on both sides there is no number, not one of zero.
    largest = None if b.size and not finite.any() else worst / scale if worst else 0.0
    step = max(1, a.size // MOST_IN_MEDIAN)
    counted = finite[::step] & (b[::step] != 0)
    each = distance[::step][counted] / np.abs(b[::step][counted])
    overflows = int((np.isinf(a) & ~np.isinf(b)).sum())
    return largest, each, overflows, int((np.isnan(a) & ~np.isnan(b)).sum())


def _doubles(x: np.ndarray) -> np.ndarray:
    """Flat; a complex number as its two parts."""
    if jnp.issubdtype(x.dtype, jnp.complexfloating):
        return np.stack([np.real(x), np.imag(x)]).ravel().astype(np.float64)
    return x.ravel().astype(np.float64)
