"""How many operations a traced program does, counted from shapes: what rules compare the parts of a program by.

Products and factorisations by their textbook counts (Golub and Van Loan, Matrix Computations, 4th ed.), all others one
for each element that is read or made, whichever is more; elementary functions as ten, random bits as a hundred. Bodies
of loops count as often as they run; one of unknown length counts once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from jax.extend import core

from benchax.auditing.traced import TracedEquation, TracedValue, flow

ELEMENTARY = 10
"""Operations of one exp, log, tanh, as vectorised libraries compute them, about."""
RANDOM = 100
"""Operations of one word of random bits: 20 rounds of Threefry of five operations each (Salmon et al. 2011)."""
_ELEMENTARY = frozenset(
    [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "cbrt",
        "cos",
        "cosh",
        "digamma",
        "erf",
        "erf_inv",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "lgamma",
        "log",
        "log1p",
        "logistic",
        "pow",
        "sin",
        "sinh",
        "tan",
        "tanh",
    ]
)
_RANDOM = frozenset(("random_bits", "threefry2x32", "random_gamma"))


def elements(value: TracedValue) -> int:
    return math.prod(value.shape)


def operations(step: TracedEquation) -> float:
    """Those of one equation, with the bodies of its loops and the dearest of its branches."""
    if step.name in _COUNTS:
        return _COUNTS[step.name](step)
    nested = [_total(closed) for closed in bodies_of(step.equation.params)]
    if nested:
        return max(nested) if step.name == "cond" else sum(nested) * step.equation.params.get("length", 1)
    each = ELEMENTARY if step.name in _ELEMENTARY else RANDOM if step.name in _RANDOM else 1
    return each * max((elements(value) for value in (*step.reads, *step.makes)), default=0)


def count_operations(steps: Iterable[TracedEquation]) -> float:
    return sum(operations(step) for step in steps)


def bodies_of(params: Any) -> list[Any]:
    """The closed programs among the parameters of an equation."""
    values = [each for v in params.values() for each in (v if isinstance(v, list | tuple) else (v,))]
    return [each for each in values if isinstance(each, core.ClosedJaxpr)]


def _total(closed: Any) -> float:
    return count_operations(flow(closed).steps)


def _of_product(step: TracedEquation) -> float:
    (contracted, _), _ = step.equation.params["dimension_numbers"]
    return 2.0 * elements(step.makes[0]) * math.prod(step.reads[0].shape[axis] for axis in contracted)


def _of_convolution(step: TracedEquation) -> float:
    """Of each output: the window, and the channels that it sums over."""
    kernel = step.reads[1]
    features = kernel.shape[step.equation.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * elements(step.makes[0]) * elements(kernel) / max(1, features)


def _of_matrix(count: Callable[[int, int], float]) -> Callable[[TracedEquation], float]:
    """Of each matrix of a batch, by its longer and its shorter side."""

    def of_step(step: TracedEquation) -> float:
        *batch, m, n = step.reads[0].shape
        return math.prod(batch) * count(max(m, n), min(m, n))

    return of_step


def _of_triangular_solve(step: TracedEquation) -> float:
    n = step.reads[0].shape[-1]
    return float(n * elements(step.reads[1]))


def _of_sort(step: TracedEquation) -> float:
    n = step.reads[0].shape[step.equation.params.get("dimension", -1)] if step.reads[0].shape else 1
    return sum(elements(value) for value in step.makes) * math.log2(max(2, n))


def _of_fft(step: TracedEquation) -> float:
    made = max(elements(step.makes[0]), elements(step.reads[0]))
    return 2.5 * made * math.log2(max(2, math.prod(step.equation.params["fft_lengths"])))


_COUNTS: dict[str, Callable[[TracedEquation], float]] = {
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
    "triangular_solve": _of_triangular_solve,
    "sort": _of_sort,
    "fft": _of_fft,
}
DEAR = frozenset(_COUNTS)
"""Primitives that do more than a few operations for each element."""
