"""Notes where a program makes float64 arrays of NumPy's arrays and of lists, without saying a dtype.

With `jax_enable_x64` on, `jnp.asarray(np.hanning(n))` is float64, and whatever meets it is computed in float64. What
JAX traces tells only of the line where it is used: a constant has no equation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from benchax.specs import ArraySpec
from benchax.watching.frames import user_line

WIDE = ("float64", "complex128")


class WideArrays:
    """The user's lines that make them, by what they make."""

    def __init__(self) -> None:
        self.lines: dict[str, set[str]] = {}

    def note(self, args: Sequence[Any], kwargs: Mapping[str, Any], found: Any) -> None:
        """Told of each call of `jnp.asarray` and `jnp.array`, also of those while JAX traces."""
        is_asked = len(args) > 1 or kwargs.get("dtype") is not None
        if is_asked or not isinstance(args[0], np.ndarray | list | tuple) or str(found.dtype) not in WIDE:
            return
        where = user_line() if found.shape and jax.config.read("jax_enable_x64") else None
        if where is not None:
            self.lines.setdefault(str(ArraySpec(str(found.dtype), tuple(found.shape))), set()).add(where)

    def asdict(self) -> dict[str, tuple[str, ...]]:
        """Lines by spec, f64[256]."""
        return {spec: tuple(sorted(lines)) for spec, lines in self.lines.items()}
