"""How far the outputs of a compiled function are from a reference: structure, shapes, types, then values.

A wrong result is the fastest one. Two programs that should do the same need not be equal to the bit. Examples are two
versions, two functions, or one function in two settings. Half of the digits must agree, per leaf and norm-wise:

    max |compiled - reference|  <=  tolerance * max |reference|        tolerance: sqrt(eps); 16 bits: 8 eps

This is the default of Julia's `isapprox` (Base, floatfuncs.jl: rtol = sqrt(eps) for inexact numbers, 0 for the rest,
norms for arrays), but with the maximum norm. For float32 the limit is 3.5e-4 of the largest value. The check is
norm-wise, because an element that is small through cancellation gets its error from the large ones.

The check of a compiled function against its source is stricter: `measuring/verification.py` begins with
`compare_leaves` and its own bound.

Integers and booleans must be equal. NaN agrees with NaN in the same place, an infinity with the same infinity.
A complex number counts as its two parts. Typed keys of `jax.random` count as their key data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.model import Numerics

Against = Literal["eager", "float64", "baseline"]
Kind = Literal["bool", "int", "float", "complex", "key", "float0", "object"]

_PIECE = 2**18  # elements: the temporaries stay in the cache

_EXPONENT_BITS = np.float64(math.inf).view(np.int64)

_KINDS: dict[Kind, Any] = {
    "bool": np.bool_,
    "int": np.integer,
    "float": np.floating,
    "complex": np.complexfloating,
    "key": jax.dtypes.prng_key,
}


@dataclass(frozen=True)
class _Leaf:
    """A leaf and the facts to compare before its values. Without an array or a number, `dtype` is missing (None)."""

    value: Any
    kind: Kind
    dtype: Any = None
    shape: tuple[int, ...] = ()

    @property
    def spec(self) -> str:
        if self.dtype is None:
            return _short(self.value)
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"


class _Extremes(NamedTuple):
    """The maxima over all elements of two arrays: the largest distance, in itself and in units in the last place, and
    so on."""

    largest: float = 0.0
    scale: float = 0.0
    """The largest magnitude in the reference."""
    ulp: float = 0.0
    nonfinite: int = 0
    where: int = 0
    """Flat index of the worst element."""


def compare(outputs: Any, reference: Any, *, against: Against) -> Numerics:
    """Compares two pytrees of arrays. A disagreement is a result, never an exception.

    Args:
        outputs: what the compiled function returned.
        reference: the expected outputs, with the same structure, shapes and dtypes. Against "float64", the same
            structure, shapes and kinds are enough (float for float, of any width). Weak types make no difference.
            Python's and NumPy's 64-bit types count as the types that JAX makes of them.
        against: how the reference was made.

    Returns:
        Numerics. Its differences and its tolerance come from the worst leaf: the leaf furthest beyond (or nearest to)
        the limit. `nonfinite` is summed over all leaves. If no number exists, a field has the
        value None: no leaves, a difference in structure, type or finiteness, or a maximum that is not finite.
    """
    leaves = compare_leaves(outputs, reference, against=against, allowed=tolerance_between_programs)
    return leaves if isinstance(leaves, Numerics) else worst_of(leaves, against)


@dataclass(frozen=True)
class LeafComparison:
    """One leaf and its reference. `compiled` and `reference` are NumPy arrays, or None if the leaf holds no numbers."""

    path: str
    against: Against
    agrees: bool
    compiled: Any = None
    reference: Any = None
    found: _Extremes = field(default_factory=_Extremes)
    """How far these are apart."""
    bound: float = 0.0
    """The allowed difference, as a share of the reference's largest value."""
    beyond: str = ""
    """Says what is too far, where it is not the largest difference."""
    undecided: str = ""
    """Why it can't be decided whether they agree; empty if it can."""

    def turned(self, compiled: Any) -> LeafComparison:
        """Returns the same leaf with other compiled values: the columns of a matrix whose sign or phase is free."""
        return replace(self, compiled=compiled, found=_extremes(compiled, self.reference))

    @property
    def excess(self) -> float:
        """The difference over what is allowed: above 1 they disagree."""
        if self.compiled is None:
            return 0.0 if self.agrees else math.inf
        allowed = max(self.bound * self.found.scale, _underflow(self.compiled.dtype))
        return self.found.largest / allowed if allowed else math.inf if self.found.largest else 0.0

    @property
    def numerics(self) -> Numerics:
        found = self.found
        if self.compiled is None:
            return Numerics(self.against, self.agrees, self.path, why=self.beyond)
        return Numerics(
            self.against,
            self.agrees,
            self.path,
            max_abs=_finite(found.largest),
            max_rel=_finite(found.largest / found.scale) if found.scale else None if found.largest else 0.0,
            max_ulp=_finite(found.ulp),
            nonfinite=found.nonfinite,
            tolerance=_finite(self.bound),
            why="" if self.agrees else self._why(),
        )

    def _why(self) -> str:
        a, b, found = self.compiled, self.reference, self.found
        where = tuple(int(i) for i in np.unravel_index(found.where, a.shape))
        at = f" at [{', '.join(map(str, where))}]" if where else ""
        size = self.beyond or _size_text(found, self.bound, a.dtype)
        return f"{_called(self.path)}{at} is {_values_text(a[where].item(), b[where].item())} ({size})"


def compare_leaves(
    outputs: Any, reference: Any, *, against: Against, allowed: Callable[[Any], float]
) -> Numerics | list[LeafComparison]:
    """As `compare`, leaf by leaf; just one Numerics if the trees differ in structure or types.

    Args:
        allowed: gives, for a dtype, the share of the reference's largest value by which a leaf can differ.
    """
    if why := _structure_difference(outputs, reference):
        return Numerics(against, agrees=False, why=why)
    pairs = [(path, _leaf(a), _leaf(b)) for (path, a), (_, b) in zip(_flat(outputs), _flat(reference), strict=True)]
    for path, compiled, expected in pairs:
        if not _same_type(compiled, expected, against):
            why = f"{_called(path)} is {compiled.spec} where the reference is {expected.spec}"
            return Numerics(against, agrees=False, worst=path, why=why)
    with np.errstate(all="ignore"):  # overflow and NaN are what is looked for here, not accidents
        return [_judged(*pair, against, allowed) for pair in pairs]


def worst_of(leaves: Sequence[LeafComparison], against: Against) -> Numerics:
    """The Numerics of the worst leaf, on behalf of all."""
    if not leaves:
        return Numerics(against, agrees=True)
    # If several leaves are equally far off (usually not at all), describe one that has a tolerance.
    worst = max(leaves, key=lambda leaf: (not leaf.agrees, leaf.excess, -1.0 if leaf.compiled is None else leaf.bound))
    nonfinite = sum(leaf.found.nonfinite for leaf in leaves)
    return replace(worst.numerics, worst=worst.numerics.worst if worst.excess else "", nonfinite=nonfinite)


def tolerance(dtype: Any) -> float:
    """Half of the digits, as a share of the reference's largest value; 0 for exact types.

    This is the accuracy that a function can lose when it runs in `dtype` instead of a wider type.
    """
    return math.sqrt(float(jnp.finfo(dtype).eps)) if jnp.issubdtype(dtype, np.inexact) else 0.0


def tolerance_between_programs(dtype: Any) -> float:
    """The allowed difference between leaves of `dtype` of two programs, as a share of the reference's largest value.

    It is `tolerance`, with two exceptions. For 16-bit types it is 8 units in the last place: half of the few digits of
    bfloat16 would let an error of 8 % pass. For 8-bit types it is one unit. It is 0 for exact types.
    """
    bits = jnp.finfo(dtype).bits if jnp.issubdtype(dtype, np.floating) else 64
    units = {16: 8, 8: 1}.get(int(bits))
    return units * float(jnp.finfo(dtype).eps) if units else tolerance(dtype)


def describe_nonfinite(tree: Any) -> str:
    """ "3 NaN and 2 infinite of 100"; empty if all numbers in the tree are finite."""
    leaves = [leaf for leaf in map(_leaf, jax.tree.leaves(tree)) if leaf.kind in ("float", "complex")]
    arrays = [np.asarray(leaf.value) for leaf in leaves]
    nans = sum(int(np.isnan(x).sum()) for x in arrays)
    infinities = sum(int((~np.isfinite(x)).sum()) for x in arrays) - nans
    counts = [f"{count} {what}" for count, what in ((nans, "NaN"), (infinities, "infinite")) if count]
    return f"{' and '.join(counts)} of {sum(x.size for x in arrays)}" if counts else ""


# Structure and types


def _is_none(x: Any) -> bool:
    """Treats None as a leaf, so that a message can report "None where the reference is float32[3]"."""
    return x is None


def _flat(tree: Any) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=_is_none)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _structure_difference(outputs: Any, reference: Any) -> str:
    """A sentence, or nothing where the two trees are built alike."""
    # Dictionaries, because their keys keep their order and are quick to look up.
    paths, expected = dict(_flat(outputs)), dict(_flat(reference))
    lacking = [path for path in expected if path not in paths]
    surplus = [path for path in paths if path not in expected]
    if lacking and "" not in lacking + surplus:
        return f"the outputs lack leaf {lacking[0]} of the reference"
    if surplus and "" not in lacking + surplus:
        return f"the outputs have a leaf {surplus[0]} that the reference has not"
    built, wanted = (jax.tree_util.tree_structure(t, is_leaf=_is_none) for t in (outputs, reference))
    try:
        same = built == wanted
    except Exception:
        # Static data of a user's pytree class may not support `==` (arrays do not). Then equal paths must be enough.
        same = not lacking and not surplus
    return "" if same else f"the outputs are {_short(built)} where the reference is {_short(wanted)}"


def _leaf(value: Any) -> _Leaf:
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        dtype = jax.dtypes.canonicalize_dtype(np.asarray(value).dtype)
    elif isinstance(value, jax.Array | np.ndarray | np.generic):
        dtype = value.dtype
    else:
        return _Leaf(value, "object")
    if dtype == jax.dtypes.float0:
        return _Leaf(value, "float0", "float0", np.shape(value))
    for kind, group in _KINDS.items():
        if jnp.issubdtype(dtype, group):
            return _Leaf(value, kind, dtype, np.shape(value))
    return _Leaf(value, "object", dtype, np.shape(value))


def _same_type(a: _Leaf, b: _Leaf, against: Against) -> bool:
    if a.kind != b.kind or a.shape != b.shape or (a.dtype is None) != (b.dtype is None):
        return False
    if a.kind == "key":
        return a.dtype == b.dtype
    if a.kind in ("object", "float0") or against == "float64":
        return True
    return jax.dtypes.canonicalize_dtype(a.dtype) == jax.dtypes.canonicalize_dtype(b.dtype)


# Values


def _judged(
    path: str, compiled: _Leaf, expected: _Leaf, against: Against, of_type: Callable[[Any], float]
) -> LeafComparison:
    """One pair of leaves."""
    if compiled.kind == "float0":  # the gradient of an integer: no value at all
        return LeafComparison(path, against, True)
    if compiled.kind == "object":
        return _judged_object(path, compiled.value, expected.value, against)
    a, b = (np.asarray(jax.random.key_data(x.value) if x.kind == "key" else x.value) for x in (compiled, expected))
    bound, found = of_type(compiled.dtype) if compiled.kind in ("float", "complex") else 0.0, _extremes(a, b)
    beyond = f"{found.nonfinite} of {a.size} values differ in being NaN or infinite" if found.nonfinite else ""
    leaf = LeafComparison(path, against, False, a, b, found, bound, beyond)
    return replace(leaf, agrees=leaf.excess <= 1)


def _judged_object(path: str, a: Any, b: Any, against: Against) -> LeafComparison:
    try:
        same = a is b or bool(np.all(a == b))
    except Exception:
        same = False  # what refuses to be compared is not known to agree; the sentence shows both
    why = "" if same else f"{_called(path)} is {_short(a)} where the reference has {_short(b)}"
    return LeafComparison(path, against, same, beyond=why)


def _extremes(a: np.ndarray, b: np.ndarray) -> _Extremes:
    """Compares piece by piece, which takes only a few MiB in addition to the arrays. So the process's peak remains the
    program's.
    """
    a, b = np.ravel(a), np.ravel(b)
    found, furthest = _Extremes(), 0.0
    for start in range(0, a.size, _PIECE):
        piece = a[start : start + _PIECE]
        distance, mismatched, magnitude = _distances(piece, b[start : start + _PIECE])
        ranked = distance if mismatched is None else np.where(mismatched, math.inf, distance)
        is_further = float(ranked.max()) > furthest
        furthest = max(furthest, float(ranked.max()))
        found = _Extremes(
            largest=max(found.largest, float(distance.max())),
            scale=max(found.scale, float(magnitude.max())),
            ulp=max(found.ulp, float((distance / _spacing(magnitude, a.dtype)).max()) if distance.any() else 0.0),
            # An element with two parts is not finite if one of them is not.
            nonfinite=found.nonfinite
            + (0 if mismatched is None else int(mismatched.reshape(piece.size, -1).any(axis=1).sum())),
            where=start + int(ranked.argmax()) // (ranked.size // piece.size) if is_further else found.where,
        )
    # A difference from what is not finite has no size.
    return found._replace(largest=math.inf, ulp=math.inf) if found.nonfinite else found


def _distances(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Per element: |a - b|, whether they differ in being NaN or infinite (then the distance is 0), and |b|.

    If all values are finite, the second has the value None. Results are in double precision. A pair of complex numbers
    becomes a last axis of 2. |b| is 0 for elements whose b is not finite.
    """
    if not jnp.issubdtype(a.dtype, np.inexact):
        a, b = _integers(a), _integers(b)
        x, y = a.astype(np.float64), b.astype(np.float64)
        # Above 2**53, neighboring integers are the same double, so unequal ones differ by at least 1.
        return np.where(a != b, np.maximum(np.abs(x - y), 1.0), 0.0), None, np.abs(y)
    x, y = _doubles(a), _doubles(b)
    distance = np.abs(x - y)
    if math.isfinite(float(distance.max())):  # no NaN and no infinity survives a difference: the common case, quickly
        return distance, None, np.abs(y)
    finite = np.isfinite(x) & np.isfinite(y)
    mismatched = ~(finite | (x == y) | (np.isnan(x) & np.isnan(y)))
    return np.where(finite, distance, 0.0), mismatched, np.where(np.isfinite(y), np.abs(y), 0.0)


def as_doubles(x: np.ndarray) -> np.ndarray:
    """Any numbers in double precision; of a complex number its two parts, on a last axis."""
    return _doubles(x) if jnp.issubdtype(x.dtype, np.inexact) else _integers(x).astype(np.float64)


def _integers(x: np.ndarray) -> np.ndarray:
    # NumPy has no arithmetic for int4 and similar types. uint64 does not fit and stays.
    return x if x.dtype == np.uint64 else x.astype(np.int64)


def _doubles(x: np.ndarray) -> np.ndarray:
    if not jnp.issubdtype(x.dtype, np.complexfloating):
        return x.astype(np.float64)
    return np.stack([np.real(x), np.imag(x)], axis=-1).astype(np.float64)


def _underflow(dtype: np.dtype) -> float:
    """The smallest value that the type can distinguish from zero. XLA flushes numbers below the smallest normal one to
    zero. So exp(-200) is 0 in float32 and 1e-87 in float64: this is not a disagreement. Narrow types keep such numbers
    (they are computed in a wider type)."""
    if not jnp.issubdtype(dtype, np.inexact):
        return 0.0
    info = jnp.finfo(dtype)
    return float(info.tiny) if info.tiny < 1e-30 else float(info.smallest_subnormal)


def _spacing(magnitude: np.ndarray, dtype: np.dtype) -> np.ndarray | float:
    """Distance between neighbouring numbers of `dtype` at `magnitude` (np.spacing, but for every type); integers: 1."""
    if not jnp.issubdtype(dtype, np.inexact):
        return 1.0
    info = jnp.finfo(dtype)
    # The power of two below each magnitude, by its bits: np.frexp takes five times as long.
    power = (magnitude.view(np.int64) & _EXPONENT_BITS).view(np.float64)
    return np.maximum(power, math.ldexp(1.0, info.minexp)) * math.ldexp(1.0, -info.nmant)


# Sentences


def _size_text(found: _Extremes, bound: float, dtype: Any) -> str:
    if not bound and dtype is not None and not jnp.issubdtype(dtype, np.inexact):
        return f"largest difference {found.largest:.17g}; {dtype} must be equal"
    share = f"{found.largest / found.scale:.1e} of the reference's largest value" if found.scale else ""
    share = share or "the reference is zero throughout"
    return f"largest difference {found.largest:.1e}, {share}; allowed {bound:.1e}"


def _called(path: str) -> str:
    return f"leaf {path}" if path else "the output"


def _values_text(a: Any, b: Any) -> str:
    """Both values, with as few digits as tell them apart."""
    if isinstance(a, int):  # bool is one
        return f"{a} where the reference has {b}"
    digits = next((n for n in (3, 6, 9) if f"{a:.{n}g}" != f"{b:.{n}g}"), 17)
    return f"{a:.{digits}g} where the reference has {b:.{digits}g}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 160 else text[:157] + "..."


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
