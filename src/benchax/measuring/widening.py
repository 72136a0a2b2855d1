"""A call evaluated in double precision, drawing the same random bits and counting in the same integers.

Running the Python function in JAX's 64-bit mode would compute something else: random numbers are drawn from 64 bits
instead of 32, integer sums no longer wrap, and an `astype(float32)` in the function stays what it is. So the call is
traced as it stands, and its jaxpr evaluated with every floating value in 64 bits and everything else as declared:

- a conversion between floating types, and `reduce_precision`, does nothing; one from integers gives doubles;
- what looks at the bits of a float (`bitcast_convert_type`, of which random numbers are made) or draws in its type
  (`random_gamma`) or leaves JAX (`pure_callback`) is given, and gives, values of the declared type;
- what exists in one type only (kernels, foreign calls) cannot be evaluated, and the result is not judged.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchax.measuring.jaxprs import Arrays, Evaluator, TracedCall, bind, is_inexact, with_dtypes

AS_DECLARED = ("bitcast_convert_type", "random_gamma", "pure_callback", "nextafter")
NOTHING = ("reduce_precision",)


def evaluate_wide(call: TracedCall) -> Any:
    """The outputs of `call` as a tree of NumPy arrays, with its floats in 64 bits; typed keys as they are.

    Raises:
        NotMeasured: an equation has no form in double precision.
    """
    with _x64():
        outputs = jax.block_until_ready(EVALUATOR.run(call))
        plain = [leaf if _is_key(leaf) else np.asarray(leaf) for leaf in outputs]
    return jax.tree.unflatten(call.out_tree, plain)


def _wide(dtype: Any) -> Any:
    if not is_inexact(dtype):
        return dtype
    return np.dtype(np.complex128 if jax.dtypes.issubdtype(dtype, np.complexfloating) else np.float64)


def _widened(value: Any) -> Any:
    if isinstance(value, float | complex):
        return np.asarray(value, _wide(np.asarray(value).dtype))
    dtype = getattr(value, "dtype", None)
    return value.astype(_wide(dtype)) if dtype is not None and is_inexact(dtype) else value


def _is_key(value: Any) -> bool:
    return jax.dtypes.issubdtype(getattr(value, "dtype", np.int32), jax.dtypes.prng_key)


def _apply(equation: Any, operands: Arrays) -> Arrays:
    name = equation.primitive.name
    if name in NOTHING:
        return operands
    if name in AS_DECLARED:
        declared = [_as(value, v.aval.dtype) for value, v in zip(operands, equation.invars, strict=True)]
        return [_widened(result) for result in bind(equation, declared)]
    if not any(is_inexact(v.aval.dtype) for v in (*equation.invars, *equation.outvars)):
        return bind(equation, operands)
    return bind(equation, operands, with_dtypes(EVALUATOR.retrace(equation.params), _wide))


def _as(value: Any, dtype: Any) -> Any:
    return value.astype(dtype) if is_inexact(dtype) else value


EVALUATOR = Evaluator(_widened, _wide, _apply)


@contextlib.contextmanager
def _x64() -> Iterator[None]:
    """JAX's 64-bit mode for a while. `jax.enable_x64` since 0.8, in `jax.experimental` before."""
    module = jax if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental")
    with module.enable_x64(True):
        yield
