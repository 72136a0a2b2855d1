"""Are two jaxprs the same program? Compared equation by equation; which names variables have does not matter.

Constants count by value, parameters as far as they are plain values or jaxprs: functions and objects among them are new
ones in every trace, and say nothing.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

LARGE = 1 << 20
"""Elements; larger constants are taken for equal."""
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.dtype, np.generic, enum.Enum)


def difference(one: Any, other: Any, line: Callable[[Any], str] = lambda equation: "") -> str | None:
    """What differs first between two closed jaxprs, in words; None where they are the same program.

    Args:
        line: file and line of an equation.
    """
    for a, b in zip(one.consts, other.consts, strict=False):
        if not _is_equal(a, b):
            return f"an array that is part of it, {_spec(a)}, has other values"
    return _difference(one.jaxpr, other.jaxpr, line)


def _difference(one: Any, other: Any, line: Callable[[Any], str]) -> str | None:
    numbers = ({}, {})
    for a, b in zip((*one.constvars, *one.invars), (*other.constvars, *other.invars), strict=False):
        numbers[0][a] = numbers[1][b] = len(numbers[0])
    for a, b in zip(one.eqns, other.eqns, strict=False):
        if (found := _of_equations(a, b, numbers, line)) is not None:
            where = line(b) or line(a)
            return found + (f" at {where}" if where and " at " not in found else "")
        for x, y in zip(a.outvars, b.outvars, strict=False):
            numbers[0][x] = numbers[1][y] = len(numbers[0])
    if len(one.eqns) != len(other.eqns):
        return f"the one has {len(one.eqns)} operations, the other {len(other.eqns)}"
    return _of_operands(one.outvars, other.outvars, numbers)


def _of_equations(a: Any, b: Any, numbers: Any, line: Callable[[Any], str]) -> str | None:
    if a.primitive.name != b.primitive.name:
        return f"{a.primitive.name} became {b.primitive.name}"
    if (found := _of_operands(a.invars, b.invars, numbers)) is not None:
        return found
    for name, value in a.params.items():
        if (found := _of_values(value, b.params.get(name), line)) is not None:
            return found if " became " in found else f"{name} of {a.primitive.name} {found}"
    return None


def _of_operands(one: Sequence[Any], other: Sequence[Any], numbers: Any) -> str | None:
    if len(one) != len(other):
        return f"{len(one)} operands became {len(other)}"
    for a, b in zip(one, other, strict=True):
        if str(a.aval) != str(b.aval):
            return f"{a.aval} became {b.aval}"
        if hasattr(a, "val") and hasattr(b, "val"):
            if not _is_equal(a.val, b.val):
                return (
                    f"constant {a.val} became {b.val}" if np.ndim(a.val) == 0 else f"a constant {_spec(a.val)} changed"
                )
        elif hasattr(a, "val") or hasattr(b, "val") or numbers[0].get(a) != numbers[1].get(b):
            return "an operation takes another operand"
    return None


def _of_values(a: Any, b: Any, line: Callable[[Any], str]) -> str | None:
    if hasattr(a, "eqns") and hasattr(b, "eqns"):
        closed = hasattr(a, "consts") and hasattr(b, "consts")
        return difference(a, b, line) if closed else _difference(a, b, line)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        if len(a) != len(b):
            return f"went from {len(a)} to {len(b)} members"
        return next((found for x, y in zip(a, b, strict=True) if (found := _of_values(x, y, line)) is not None), None)
    if isinstance(a, PLAIN) and isinstance(b, PLAIN) and a != b and not (a != a and b != b):
        return f"went from {a!r} to {b!r}"
    return None


def _is_equal(a: Any, b: Any) -> bool:
    if a is b or not all(hasattr(x, "dtype") or isinstance(x, PLAIN) for x in (a, b)):
        return True
    if jax.dtypes.issubdtype(getattr(a, "dtype", np.float32), jax.dtypes.extended) or np.size(a) >= LARGE:
        return True
    one, other = np.asarray(a), np.asarray(b)
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")


def _spec(value: Any) -> str:
    return f"{getattr(value, 'dtype', type(value).__name__)}{list(np.shape(value))}"
