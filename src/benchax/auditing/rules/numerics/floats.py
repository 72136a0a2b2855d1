"""Results that lose their digits, overflow, or wrap around."""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import (
    Match,
    NotApplicable,
    compute_values,
    rule,
)
from benchax.program.index import MOVES, TAKES, TracedOp, Value
from benchax.program.jaxpr import is_users_own, names, nested_in
from benchax.program.patterns import root_of
from benchax.units import percent

PACK = "numerics"
OF_CALL = "with the arguments of one call"


# ---- cancelling-variance ---------------------------------------------------------------------------------------------

LINEAR = (
    MOVES
    | TAKES
    | names("add concatenate conv_general_dilated cumsum div dot_general mul reduce_sum reduce_window scatter-add sub")
    | {"reduce_window_sum"}
)
"""Operations that can come between squares and their mean."""
LEFT_EPS, LEAST_SHARE = 64, 0.5
"""A difference of this many units of rounding, or fewer, has six bits that mean something at most; and the share of
elements: a variance that is 0 in some columns belongs to what never changes."""


@rule(
    "cancelling-variance",
    "are variances computed from centered values?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Subtract first, then square: jnp.var(x), or jnp.mean((x - mean) ** 2). If you keep sums of batches or "
        "of a window, first subtract a value close to the mean from x; the variance stays the same. "
        "Merge running moments by their centered sums (Chan, Golub and LeVeque, The American Statistician 37, "
        "1983)."
    ),
)
def cancelling_variance(e: Evidence) -> Iterator[Match]:
    """Finds variances as the mean of squares less the square of the mean, where rounding can leave no digit."""
    found = [op for op in e.program.ops if op.name in ("sub", "add") and _is_variance(op)]
    if not found:
        raise NotApplicable("no mean of squares less the square of a mean is written in it")
    for op in found:
        squares, result = compute_values(e, [_difference(op)[0], op.makes[0]])
        eps = float(jnp.finfo(result.dtype).eps)
        sizes, left = (np.abs(np.broadcast_to(one, result.shape).astype(np.float64)) for one in (squares, result))
        known = np.isfinite(sizes) & np.isfinite(left) & (sizes > 0)
        lost = float(np.mean(left[known] <= LEFT_EPS * eps * sizes[known])) if known.any() else 0.0
        if lost < LEAST_SHARE:
            continue
        typical, dtype = float(np.median(sizes)), op.makes[0].dtype
        yield Match(
            f"the mean of squares less the square of the mean leaves no digits in {dtype}",
            [
                f"{OF_CALL} {percent(lost)} of {result.size} differences{op.at} are of the size of rounding",
                (
                    f"the mean of squares is about {typical:.3g}, which {dtype} has in steps of {eps * typical:.2g}; "
                    f"the differences are {float(np.min(result)):.3g} to {float(np.max(result)):.3g}"
                ),
            ],
            op=op,
        )


def _is_variance(op: TracedOp) -> bool:
    sides = _difference(op) if op.makes[0].is_of(jnp.floating) and is_users_own(*op.inwards) else ()
    squares, squared = (value.view(scaled=True).source for value in sides) if sides else (op.makes[0], op.makes[0])
    if not sides or root_of(squared) is None or root_of(squares) is not None:
        return False
    behind = list(squares.behind(LINEAR))
    windows = (one.maker for one in behind if one.maker is not None and one.maker.name == "reduce_window")
    return all(map(_adds, windows)) and any(root_of(one) is not None for one in behind)


def _difference(op: TracedOp) -> tuple[Value, ...]:
    """(a, b) of a - b, which `-b + a` is, too; nothing for other operations."""
    if op.name == "sub":
        return op.reads
    sides = (op.reads, op.reads[::-1])
    found = (
        (one, other.maker.reads[0]) for one, other in sides if other.maker is not None and other.maker.name == "neg"
    )
    return next(found, ())


def _adds(window: TracedOp) -> bool:
    """`jax.lax.reduce_window` with a first value that is computed keeps the name of its operation inside."""
    return [inner.primitive.name for body in nested_in(window.equation) for inner in body.eqns] == ["add"]
