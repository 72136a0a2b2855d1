"""Results that are wrong numbers: NaN, and what JAX gives for an index outside of an axis."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.input_names import name_inputs
from benchax.auditing.known_indices import IndexAccess, IndexComparison, KnownIndices
from benchax.auditing.masked_gradients import SINGULAR, bad_wheres
from benchax.auditing.nan_origins import NanOrigin, NonFinite, find_origin, is_nan
from benchax.auditing.rule import NotApplicable
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.auditing.traced import Match, traced_rule
from benchax.errors import NotMeasured
from benchax.program.index import TracedOp, TracedProgram
from benchax.source_files import owner_of
from benchax.specs import is_spec

# The data of one call, for rules that need more of a function than its program.


def check_real(e: Evidence) -> None:
    """Raises `NotApplicable` where its inputs were made up here of specs, and say nothing about real ones."""
    if any(isinstance(leaf, str) and is_spec(leaf) for leaf in jax.tree.leaves(e.given)):
        raise NotApplicable("its inputs are made up of specs, and real ones are others")


def inputs_of_call(e: Evidence) -> tuple[Any, ...]:
    """Returns the inputs of the jaxpr at one call, with None for inputs that were not kept.

    Raises:
        NotApplicable: as `check_real`.
        NotMeasured: no input was kept.
    """
    check_real(e)
    if len(e.data) != len(e.closed_jaxpr.in_avals):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    return tuple(e.data)


# ---- nan-results -----------------------------------------------------------------------------------------------------

MOST_WORK = 1e10
"""Operations of a call that is run again: some seconds."""
KEEP_WITHIN = {
    "sqrt": "0 or more: jnp.maximum(x, 0.0)",
    "rsqrt": "more than 0: jnp.maximum(x, 1e-6)",
    "log": "more than 0: jnp.maximum(x, 1e-6); of a softmax take jax.nn.log_softmax, of x * log(x) xlogy",
    "log1p": "more than -1: jnp.maximum(x, -1 + 1e-6)",
    "pow": "0 or more if the exponent is no whole number: jnp.maximum(x, 0.0)",
    "acos": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "asin": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "acosh": "1 or more: jnp.maximum(x, 1.0)",
    "atanh": "within -1 and 1: jnp.clip(x, -1 + 1e-6, 1 - 1e-6)",
}
"""The values that an operation needs."""
DIVISOR = "Keep the divisor from 0: jnp.where(n > 0, total / jnp.where(n > 0, n, 1), 0.0), or jnp.maximum(n, 1)."
OVERFLOW = "Keep it from overflowing: subtract the largest before exp, as jax.nn.softmax does, or bound it."
ADVICE = {
    **{name: f"What it is given must be {what}." for name, what in KEEP_WITHIN.items()},
    **dict.fromkeys(("div", "rem"), DIVISOR),
    **dict.fromkeys(("exp", "exp2", "expm1", "cosh", "sinh"), OVERFLOW),
    "cholesky": "The matrix is not positive definite: add a small number to its diagonal, a + 1e-6 * jnp.eye(n), or "
    "compute in float64.",
    "gather": "An index is outside of its axis, and JAX gives NaN there: look at how it is computed.",
    "derivative": "Give the operation of this line a harmless number where its derivative is infinite, before it: "
    "safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0); or keep it away from there: "
    "jnp.sqrt(x + 1e-12). A norm is the root of a sum of squares, and has no derivative at 0.",
    "mask": "inf - inf and 0 * inf are NaN: a row in which everything is masked has nothing left. Mask with a large "
    "finite number, or leave such rows out with jnp.where before and after.",
    "": "Look at what it is given there, and keep it within what the operation has a value for.",
}


@traced_rule("nan-results", "where does NaN come from?", "warning", keeps_backward=True)
def nan_results(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds where NaN comes from in a function whose results are NaN though nothing that it was given is."""
    check_real(e)
    if e.nan_at is None:
        raise NotMeasured("no result of it was looked at, which is done of small ones while calls are counted")
    origin = _find_nan(program, e) if e.nan_at else None
    if origin is None:
        return
    nan, cause = origin.nan, origin.infinity or origin.nan
    line = cause.op.line or nan.op.line
    if line in {bad.line for bad in bad_wheres(program)}:
        return  # where-gradient reports it
    name = nan.op.name if origin.infinity is None else cause.op.name
    what, key = name.replace("_", " "), name if name in ADVICE else "mask" if origin.given else ""
    if nan.op.is_backward:
        # A division is also what derivatives of other operations are made of.
        names = {op.name for op in program.ops if op.name in SINGULAR and op.line == cause.op.line} - {"div"}
        what, key = f"the derivative of {' or '.join(sorted(names)) or 'this line'}", "derivative"
    turns = " of ".join(str(n + 1) for n in reversed(nan.iterations))
    yield Match(
        cause.op,
        f"NaN comes of {what}",
        [
            f"{_describe(nan)}{nan.op.at}{f', in iteration {turns} of its loop' if turns else ''}",
            *([f"inf comes of {_describe(origin.infinity)}{origin.infinity.op.at}"] if origin.infinity else []),
            *([f"inf is put in as a number{origin.given.at}"] if origin.given is not None else []),
            *(
                ["this is computed for a derivative; the value itself can be finite there"]
                if nan.op.is_backward
                else []
            ),
            "computed again from the arguments of one call, none of which is NaN",
        ],
        ADVICE[key],
        at=where_of(line),
    )


def _find_nan(program: TracedProgram, e: Evidence) -> NanOrigin:
    """Runs it again from the arguments of one call.

    Raises:
        NotMeasured: that cannot be done, or shows no NaN.
    """
    given, gave = inputs_of_call(e), f"call {e.nan_at} gave NaN"
    if any(one is None for one in given):
        raise NotMeasured(f"{gave}, and an array that it was called with was too large to be kept")
    if any(map(is_nan, (*given, *(value.const for value in program.consts)))):
        raise NotMeasured(f"{gave}, and so did what it was given at the call that was kept")
    if program.body.work > MOST_WORK or any(body.kind == "while" for body in program.bodies):
        raise NotMeasured(f"{gave}, and it is too long to be run again: where NaN comes from was not looked for")
    origin = find_origin(program, given)
    if origin is None:
        raise NotMeasured(f"{gave}; with the arguments that were kept none arises but of a NaN in the program")
    return origin


def _describe(one: NonFinite) -> str:
    """sqrt of -1.2e-07 gives nan: one element of the result that is not finite, and what it was made of."""
    made = np.asarray(one.made, float)
    bad = np.isnan(made) if np.isnan(made).any() else np.isinf(made)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    share = f" ({int(bad.sum())} of {bad.size} elements are)" if bad.size > 1 else ""
    operands = [_operand(value, made.shape, at) for value in one.reads[:4]]
    return f"{one.op.name.replace('_', ' ')} of {' and '.join(operands)} gives {made[at]:.3g}{share}"


def _operand(value: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):  # a random key
        return "a key"
    if array.shape == shape or not array.shape:
        return f"{array[at if array.shape else ()]:.3g}"
    finite = array[np.isfinite(array)]
    span = f" from {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    return f"{list(array.shape)}{span}{' with inf' if finite.size < array.size else ''}"


# ---- out-of-bounds-index ---------------------------------------------------------------------------------------------

MOST_ROWS_UNUSED, LEAST_NUMBERS = 0.1, 3
"""Numbers from 1 to n are indices that begin at 1 if at most this share of them is missing when they are written to.
When they are read, there must be at least this many different ones."""


@dataclass(frozen=True)
class _Outside:
    """An access, with its different indices and how often each is there."""

    access: IndexAccess
    values: np.ndarray
    counts: np.ndarray

    @property
    def op(self) -> TracedOp:
        return self.access.op

    @property
    def last(self) -> int:
        """The highest index within."""
        return self.access.length - self.access.width

    @property
    def is_outside(self) -> np.ndarray:
        return (self.values < 0) | (self.values > self.last)

    @property
    def is_write(self) -> bool:
        return self.op.name not in ("gather", "dynamic_slice", "eq")

    @property
    def is_counted(self) -> bool:
        """Has the program itself counted them: an arange, or the counter of a loop?"""
        return all(isinstance(origin, str) for origin in self.access.index.origins)

    @property
    def is_from_one(self) -> bool:
        """Are they numbers from 1 to n, all of them, or most if they are written to?"""
        if self.access.width != 1 or self.values.min() != 1 or self.values.max() != self.access.length:
            return False
        return len(self.values) >= ((1 - MOST_ROWS_UNUSED) * self.access.length if self.is_write else LEAST_NUMBERS)

    def is_meant(self, comparisons: Sequence[IndexComparison]) -> bool:
        if _says_mode(self.op) or any(map(self._is_mask, comparisons)):
            return True
        # One number that is no row, next to others that are, is padding. So is -1.
        outside = self.values[self.is_outside]
        is_padding = len(outside[outside != -1]) <= 1 and self.counts.sum() > 1 and not self.is_counted
        return is_padding and not self.is_from_one

    def _is_mask(self, one: IndexComparison) -> bool:
        """Can the program use this comparison to leave out what is outside?"""
        if not one.origins & self.access.index.origins:
            return False
        if self.is_counted:
            return True
        if one.bound is None:
            return one.name in ("lt", "le", "gt", "ge")
        if one.name in ("eq", "ne"):
            return one.bound in self.values[self.is_outside]
        return one.bound >= self.last or one.bound <= 0


def _says_mode(op: TracedOp) -> bool:
    """Does the line say what happens to them: mode="drop"? A package's own line is its own concern."""
    where = where_of(op.line)
    tree = tree_of(where[0]) if where is not None else None
    if where is None or tree is None or owner_of(where[0]) != "user":
        return True
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and holds(node, where[1]))
    return any(keyword.arg == "mode" for node in nodes for keyword in node.keywords)


@traced_rule("out-of-bounds-index", "are indices within their axes?", "warning")
def out_of_bounds_index(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds indices outside of the axis that they index: JAX reads another element or none, and reports nothing."""
    given = inputs_of_call(e)
    found = KnownIndices(program, [*(value.const for value in program.consts), *given])
    if not found.accesses:
        raise NotApplicable("it indexes nothing by integers that are known from one call")
    names = [*(f"constant {i}" for i in range(len(program.consts))), *name_inputs(e, len(given))]
    for access in found.accesses:
        one = _Outside(access, *np.unique(access.index.array.astype(np.int64), return_counts=True))
        n_outside, op = int(one.counts[one.is_outside].sum()), access.op
        if not n_outside or op.is_backward or one.is_meant(found.comparisons):
            continue
        given = " and ".join(names[i] for i in sorted(i for i in access.index.origins if isinstance(i, int)))
        low, high, length, width = int(one.values.min()), int(one.values.max()), access.length, access.width
        axis = f"axis {access.axis} of {access.array.spec} has {length} elements"
        taken = f", and {width} are taken from each index on" if width > 1 else ""
        seen = [
            f"indices of {given or 'a counter'} are {low} to {high} {'at one call' if given else 'in each call'}",
            f"{axis}{taken}: indices are 0 to {one.last}",
            f"{n_outside} of {int(one.counts.sum())} lie outside: {_done(one)}, without an error",
        ]
        if access.index.is_set and given:
            seen.append("a loop or an index that is not known takes its part of them; all of them were looked at")
        begins = f"{given} begins at 1, and its" if one.is_from_one and given else f"{given or 'a counter'}: its"
        yield Match(op, f"{begins} indices leave an axis of {length}", seen, _advise(one, given, low, high))


def _done(one: _Outside) -> str:
    """A sentence on how JAX treats such an index."""
    mode = str(one.op.params.get("mode", "CLIP"))
    if one.op.name == "eq":
        return "their rows are all 0"
    if one.is_write and one.op.name != "dynamic_update_slice" and "CLIP" not in mode:
        return "what would be written there is dropped"
    if one.is_write:
        return "JAX writes at the nearest index that is within"
    return (
        "JAX gives NaN for them, or the lowest integer"
        if "FILL" in mode
        else "JAX reads at the nearest index that is within instead"
    )


def _advise(one: _Outside, given: str, low: int, high: int) -> str:
    length, width = one.access.length, one.access.width
    if one.is_from_one and given:
        advice = f"Indices begin at 0: take {given} - 1."
    elif width > 1:
        advice = f"Let the last index be {one.last}, the length less the {width} that are taken, or pad the axis."
    elif not given:
        advice = f"Let it end at {one.last}, or wrap it with % {length}."
    else:
        longer = f", or make the axis {high + 1} long" if low >= 0 else ""
        advice = f"Look at how the numbers in {given} are made{longer}."
    how = '.add(v, mode="drop")' if one.is_write else '.get(mode="fill", fill_value=0)'
    return advice if one.op.name == "eq" else f"{advice} If you mean it, say so: x.at[i]{how}."
