"""The operations of a traced equation, counted from shapes: rules compare the parts of a program by them.

Products and factorizations count as in textbooks (Golub and Van Loan, Matrix Computations, 4th ed.). All others count
one for each element that they read or make, whichever is more; elementary functions count ten, random bits a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchax.program.jaxpr import names

ELEMENTARY = names(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p"
    " logistic pow sin sinh tan tanh"
)
"""About ten operations each, as vectorized libraries compute them."""
RANDOM = names("random_bits threefry2x32 random_gamma")
"""A word takes 20 rounds of Threefry of five operations each (Salmon et al. 2011)."""


def count_operations(op: Any, nested: float | None) -> float:
    """Operations of one run of `op`, an operation of the index; `nested` are those of the bodies that it runs."""
    if op.name in _COUNTS:
        return float(_COUNTS[op.name](op))
    if nested is not None:
        return nested
    each = 10 if op.name in ELEMENTARY else 100 if op.name in RANDOM else 1
    return float(each * max((value.size for value in (*op.reads, *op.makes)), default=0))


def _of_product(op: Any) -> float:
    (contracted, _), _ = op.params["dimension_numbers"]
    return 2.0 * op.makes[0].size * math.prod(op.reads[0].shape[axis] for axis in contracted)


def _of_convolution(op: Any) -> float:
    """The window and the channels that each output sums over."""
    kernel = op.reads[1]
    features = kernel.shape[op.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * op.makes[0].size * kernel.size / max(1, features)


def _of_matrix(count: Callable[[int, int], float]) -> Callable[[Any], float]:
    """Counts each matrix of a batch by its longer and its shorter side."""

    def of_op(op: Any) -> float:
        *batch, m, n = op.reads[0].shape
        return math.prod(batch) * count(max(m, n), min(m, n))

    return of_op


def _of_sort(op: Any) -> float:
    n = op.reads[0].shape[op.params.get("dimension", -1)] if op.reads[0].shape else 1
    return sum(value.size for value in op.makes) * math.log2(max(2, n))


def _of_fft(op: Any) -> float:
    made = max(op.makes[0].size, op.reads[0].size)
    return 2.5 * made * math.log2(max(2, math.prod(op.params["fft_lengths"])))


_COUNTS: dict[str, Callable[[Any], float]] = {
    "dot_general": _of_product,
    "conv_general_dilated": _of_convolution,
    "cholesky": _of_matrix(lambda m, n: n**3 / 3),
    "lu": _of_matrix(lambda m, n: n * n * (m - n / 3)),
    "geqrf": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "qr": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "householder_product": _of_matrix(lambda m, n: 2 * n * n * (m - n / 3)),
    "eigh": _of_matrix(lambda m, n: 4 * n**3 / 3),
    "eig": _of_matrix(lambda m, n: 10 * n**3),
    "svd": _of_matrix(lambda m, n: 4 * m * n * n - 4 * n**3 / 3),
    "triangular_solve": lambda op: op.reads[0].shape[-1] * op.reads[1].size,
    "sort": _of_sort,
    "fft": _of_fft,
}
COSTLY = frozenset(_COUNTS)
"""Primitives that do more than a few operations for each element."""
