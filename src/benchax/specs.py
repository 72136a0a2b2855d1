"""Inputs in short: `f32[1024,1024]`, `bf16[8,128]`, `u8[]`, `key`, `f32[1024@data,512]`. Text to shape and dtype, and
back.

JAX prints the same notation in jaxprs. It gives shape and dtype. After an @ it gives the axes of a mesh over which a
dimension is sharded: `f32[1024@data+model]`, or JAX's form `f32[1024@(data,model)]`. A `MeshSpec` gives the number of
devices of an axis. `measuring/inputs.py` makes the data with a seed, and `measuring/inputs.py` places them. Long NumPy
names (`float32[3]`) are read as well.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from benchax.errors import UsageError, one_of

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
_SEVERAL_AXES = re.compile(r"@\(([^()]*)\)")
_AXIS = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True)
class ArraySpec:
    """An array to be made: NumPy's dtype name (or "key" for typed PRNG keys) and a shape."""

    dtype: str
    shape: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...] = ()
    """For each dimension, the axes of the mesh over which it is sharded; empty if there are no such axes."""

    def __str__(self) -> str:
        if self.dtype == "key" and not self.shape:
            return "key"
        axes = self.axes or ((),) * len(self.shape)
        dimensions = [f"{n}@{'+'.join(over)}" if over else str(n) for n, over in zip(self.shape, axes, strict=True)]
        return f"{short_dtype(self.dtype)}[{','.join(dimensions)}]"


@dataclass(frozen=True)
class MeshSpec:
    """A mesh: its axes, in order, and how many devices each has."""

    axes: tuple[tuple[str, int], ...]
    given: Any = field(default=None, compare=False, repr=False)
    """The `jax.sharding.Mesh`, where the user made one; None: it is made of JAX's devices in their order."""

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.sizes.values())

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.axes)

    def check(self, spec: ArraySpec) -> None:
        """Raises `UsageError` if `spec` names an axis that is not here or names one twice, or where the devices of
        its axes do not divide a dimension."""
        for name, times in Counter(name for over in spec.axes for name in over).items():
            if name not in self.sizes:
                raise UsageError(
                    f"{str(spec)!r} names the axis {name!r}, which the mesh {self} does not have",
                    one_of(self.sizes, name),
                )
            if times > 1:
                raise UsageError(f"{str(spec)!r} names the axis {name!r} twice", "each axis at one dimension at most")
        for length, over in zip(spec.shape, spec.axes, strict=False):
            parts = math.prod(self.sizes[name] for name in over)
            if length % parts:
                raise UsageError(
                    f"{length} in {str(spec)!r} does not divide among the {parts} devices of {'+'.join(over)} in the "
                    f"mesh {self}",
                    f"a multiple of {parts}",
                )


_MESH = "axes and their sizes, such as data=4 or data=4,model=2"


def read_mesh(given: Any) -> MeshSpec:
    """ "data=4,model=2", {"data": 4, "model": 2} or a `jax.sharding.Mesh` as a MeshSpec.

    Raises:
        UsageError: none of these, a name that no spec could mention, a size that is no whole number above 0, or an axis
            given twice.
    """
    if isinstance(given, MeshSpec):
        return given
    if hasattr(given, "axis_names") and hasattr(given, "shape"):
        return MeshSpec(tuple((str(name), int(size)) for name, size in given.shape.items()), given)
    if isinstance(given, str):
        pairs = [tuple(part.split("=")) for part in given.replace(" ", "").split(",")]
    elif isinstance(given, Mapping):
        pairs = [(name, str(size)) for name, size in cast("Mapping[Any, Any]", given).items()]
    else:
        raise UsageError(f"cannot read {given!r} as a mesh", f"{_MESH}, a dict of them, or a jax.sharding.Mesh")
    axes: dict[str, int] = {}
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], str) or not _AXIS.fullmatch(pair[0]):
            raise UsageError(f"cannot read {given!r} as a mesh", _MESH)
        name, size = pair
        if not re.fullmatch("0*[1-9][0-9]{0,5}", size):
            raise UsageError(
                f"the axis {name!r} of the mesh {given!r} has {size!r} devices", "a whole number from 1 up"
            )
        if name in axes:
            raise UsageError(f"the mesh {given!r} has two axes called {name!r}", _MESH)
        axes[name] = int(size)
    return MeshSpec(tuple(axes.items()))


def spec_of(value: Any, axes: tuple[tuple[str, ...], ...] = ()) -> str:
    """The spec of an array, or of anything else with a shape and a dtype: f32[8,128], key[4]."""
    dtype = str(value.dtype)
    return str(ArraySpec("key" if dtype.startswith("key<") else dtype, tuple(value.shape), axes))


def is_spec(text: str) -> bool:
    """Is `text` meant as a spec? True for wrong ones too, so that a slip such as f33[8] or f32[8 is reported as one."""
    bare = text.replace(" ", "")
    return bare == "key" or bool(_SPEC.fullmatch(bare)) or bool(_UNCLOSED.fullmatch(bare))


def parse_spec(text: str) -> ArraySpec:
    """`f32[1_000,8@data]` as an ArraySpec. Spaces do not count.

    Raises:
        UsageError: no such dtype, a dimension that is not a whole number from 0 up, or an axis without a name.
    """
    match = _SPEC.fullmatch(text.replace(" ", ""))
    if text.strip() == "key":
        return ArraySpec("key", ())
    if not match:
        raise UsageError(
            f"cannot read {text!r} as an input", "a spec such as f32[1024,1024], bf16[8,128], i32[] or key"
        )
    inside = _SEVERAL_AXES.sub(lambda found: "@" + found[1].replace(",", "+"), match[2])
    dimensions = [_dimension(each, text) for each in inside.split(",") if inside]
    axes = tuple(over for _, over in dimensions)
    return ArraySpec(long_dtype(match[1], text), tuple(n for n, _ in dimensions), axes if any(axes) else ())


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


def _dimension(text: str, spec: str) -> tuple[int, tuple[str, ...]]:
    """8@data+model as (8, ("data", "model"))."""
    number, at, names = text.partition("@")
    # At most as many digits as int() reads.
    if not re.fullmatch(r"\d+(_\d+)*", number) or len(number) > 1000:
        raise UsageError(
            f"dimension {number!r} in {spec!r} is not a size", "whole numbers from 0 up, such as f32[1024,8]"
        )
    over = tuple(names.split("+")) if at else ()
    for name in over:
        if not _AXIS.fullmatch(name):
            raise UsageError(f"{name!r} in {spec!r} is not the name of an axis", "names such as f32[1024@data,8@model]")
    return int(number), over
