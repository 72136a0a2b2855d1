"""Do the functions of a grid give the same answer? Compares one trial's outputs of a cell with a reference function's.

`numerics.py` decides the limit: half of the digits of the coarser type must agree.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.numerics import compare, tolerance


@dataclass(frozen=True)
class Agreement:
    """One trial of a cell against the same trial of `reference`. A difference is a result, not an error."""

    reference: str
    """The function compared with."""
    agrees: bool
    max_abs: float | None = None
    """Largest absolute difference; None if a structure, shape or kind differs already."""
    max_rel: float | None = None
    """Largest difference over the largest magnitude of the reference."""
    why: str = ""
    """What disagreed, in a sentence; empty when it agrees."""


def agreement(outputs: Any, reference: Any, function: str) -> Agreement:
    """`outputs` and `reference` are trees of NumPy arrays; `function` is what the reference is called."""
    # The reference may be the coarser one; the bound is always that of the type of the first argument.
    is_coarser = _tolerance(reference) > _tolerance(outputs)
    pair = (reference, outputs) if is_coarser else (outputs, reference)
    # Against "float64", because there types of one kind may differ in width: f32 beside bf16 is what grids are for.
    found = compare(*pair, against="float64")
    return Agreement(function, found.agrees, found.max_abs, found.max_rel, found.why)


def _tolerance(tree: Any) -> float:
    inexact = [leaf.dtype for leaf in jax.tree.leaves(tree) if _is_inexact(leaf)]
    return max(map(tolerance, inexact), default=0.0)


def _is_inexact(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and jnp.issubdtype(leaf.dtype, np.inexact)
