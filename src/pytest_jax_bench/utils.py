"""`folded_constants_bytes`, where pytest-jax-bench 0.5.0 has it. For code that imports it; nothing of ours does."""

from __future__ import annotations

import re
from typing import Any

_CONSTANT = re.compile(r"=\s*stablehlo\.constant\b[^\n]*:\s*tensor<((?:[^<>]|<[^<>]*>)+)>")
_DIMENSION = re.compile(r"(\d+)x")
_BITS = re.compile(r"(complex<)?\D*?(\d+)")
_LONGEST = 16
"""Values of a constant that its text holds; of longer ones the type is enough."""


def folded_constants_bytes(low: Any) -> int:
    """Bytes of all constants in a lowered program: `folded_constants_bytes(jax.jit(f).lower(x))`.

    0.5.0 counted those of floats alone. `jit_constants_bytes` counts what the compiled program holds.
    """
    text = low.compiler_ir(dialect="stablehlo").operation.get_asm(large_elements_limit=_LONGEST)
    return sum(map(_bytes_of, _CONSTANT.findall(text)))


def _bytes_of(tensor: str) -> int:
    """Returns the bytes of the type 1024x2xf32, complex<f64>, 8xi1 or 16xf8E4M3FN; booleans and smaller types take a
    byte each."""
    count, at = 1, 0
    while dimension := _DIMENSION.match(tensor, at):
        count, at = count * int(dimension[1]), dimension.end()
    element = tensor[at:].partition(",")[0]
    found = _BITS.match(element)
    if found is None:
        raise ValueError(f"a constant of type {tensor!r} has no size that is known here")
    return count * max(1, int(found[2]) // 8) * (2 if found[1] else 1)
