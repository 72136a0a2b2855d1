"""Inputs in short: `f32[1024,1024]`, `bf16[8,128]`, `u8[]`, `key`, `key[4]`. Text to shape and dtype, and back.

The notation is the one that JAX prints in jaxprs. It says shape and dtype only; the data come from
`measuring/inputs.py`, which seeds them. Long NumPy names (`float32[3]`) are read as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from benchax.errors import UsageError

DTYPES = {
    "bool": "bool",
    **{f"{short}{bits}": f"{long}{bits}" for short, long in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)},
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "bf16": "bfloat16",
    "c64": "complex64",
    "c128": "complex128",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
}
_SHORT = {long: short for short, long in DTYPES.items()}
_SPEC = re.compile(r"([A-Za-z][A-Za-z0-9_]*)\[([^\[\]]*)\]")
_UNCLOSED = re.compile(r"[A-Za-z]\w*\[[^\[\]]*")


@dataclass(frozen=True)
class ArraySpec:
    """An array to be made: NumPy's dtype name (or "key" for typed PRNG keys) and a shape."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        if self.dtype == "key" and not self.shape:
            return "key"
        return f"{short_dtype(self.dtype)}[{','.join(map(str, self.shape))}]"


def spec_of(value: Any) -> str:
    """The spec of an array, or of anything else with a shape and a dtype: f32[8,128]."""
    return str(ArraySpec(str(value.dtype), tuple(value.shape)))


def is_spec(text: str) -> bool:
    """Is `text` meant as a spec? True for wrong ones too, so that a slip such as f33[8] or f32[8 is reported as one."""
    bare = text.replace(" ", "")
    return bare == "key" or bool(_SPEC.fullmatch(bare)) or bool(_UNCLOSED.fullmatch(bare))


def parse_spec(text: str) -> ArraySpec:
    """`f32[1_000,8]` as an ArraySpec. Spaces do not count.

    Raises:
        UsageError: no such dtype, or a dimension that is not a whole number from 0 up.
    """
    match = _SPEC.fullmatch(text.replace(" ", ""))
    if text.strip() == "key":
        return ArraySpec("key", ())
    if not match:
        raise UsageError(
            f"cannot read {text!r} as an input", "a spec such as f32[1024,1024], bf16[8,128], i32[] or key"
        )
    return ArraySpec(long_dtype(match[1], text), tuple(_dimension(d, text) for d in match[2].split(",") if match[2]))


def long_dtype(name: str, spec: str = "") -> str:
    """bf16 as bfloat16; float32 and key stay as they are."""
    if name in DTYPES:
        return DTYPES[name]
    if name in _SHORT or name == "key":
        return name
    where = f" in {spec!r}" if spec else ""
    raise UsageError(f"unknown dtype {name!r}{where}", f"one of: {', '.join(DTYPES)}, key")


def short_dtype(name: str) -> str:
    """float32 as f32; what has no short name stays as it is."""
    return _SHORT.get(name, name)


def _dimension(text: str, spec: str) -> int:
    # No more digits than int() would read.
    if not re.fullmatch(r"\d+(_\d+)*", text) or len(text) > 1000:
        raise UsageError(
            f"dimension {text!r} in {spec!r} is not a size", "whole numbers from 0 up, such as f32[1024,8]"
        )
    return int(text)
