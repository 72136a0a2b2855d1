"""Results that lose their digits, overflow, or wrap around."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import (
    Match,
    NotApplicable,
    compute_values,
    rule,
)
from benchax.errors import NotMeasured
from benchax.program.index import MOVES, TAKES, TracedOp, Value
from benchax.program.jaxpr import frames_of, is_users_own, names, nested_in
from benchax.program.patterns import root_of
from benchax.source_files import is_generated, owner_of
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


# ---- underflowing-product --------------------------------------------------------------------------------------------

LEAST_FACTORS = 16
PASSES = MOVES | {"neg", "max"}
NEXT_TO_NOTHING = 1e-6
"""A number that keeps a logarithm finite, as in jnp.log(p + 1e-30), rather than a term next to which 0 is
negligible."""


@rule(
    "underflowing-product",
    "do long products stay in range?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Add logarithms instead of multiplying: jnp.sum(jnp.log(p)), or jnp.sum(jax.nn.log_sigmoid(x)) and similar "
        "functions, which take the logarithm where p is made; for a determinant, jnp.linalg.slogdet."
    ),
)
def underflowing_product(e: Evidence) -> Iterator[Match]:
    """Finds products of many factors that leave the range of their dtype: likelihoods that become 0."""
    # The last operation of each first: in a tree of products it is the product of all factors.
    found = [
        (op, *long)
        for body in e.program.bodies
        for op in reversed(body.ops)
        if (long := _factors(op)) and not op.is_backward
    ]
    if not found:
        raise NotApplicable(f"no product of {LEAST_FACTORS} factors or more is in it")
    for op, factors, n, is_running in found:
        values, made = compute_values(e, [factors, op.makes[0]])
        uses = _uses_of_0(op.makes[0])
        # A running product is the weight of what came before, and one of 0 is right; only its logarithm is not.
        matters = "logarithm" in uses if is_running else uses != {"term"}
        out = (made == 0) & matters | ~np.isfinite(made)
        if not np.any(out) or not np.all(np.isfinite(values)) or np.any(values == 0):
            continue
        sizes, info = np.abs(values.astype(np.float64)), jnp.finfo(op.makes[0].dtype)
        yield Match(
            f"a product of {n} factors is {float(np.atleast_1d(made)[np.atleast_1d(out)][0]):g}, and none of them is",
            [
                f"{OF_CALL} {int(np.sum(out))} of {out.size} results are 0 or not finite",
                (
                    f"the factors have sizes from {sizes.min():.3g} to {sizes.max():.3g}, "
                    f"{np.exp(np.mean(np.log(sizes))):.3g} in the geometric mean"
                ),
                f"numbers of {op.makes[0].dtype} have sizes from {float(info.tiny):.3g} to {float(info.max):.3g}",
            ],
            op=op,
        )


def _factors(op: TracedOp) -> tuple[Value, int, bool] | None:
    """(the factors of a long product, how many, is there a product of each beginning?)"""
    if len(op.makes) != 1 or not op.makes[0].is_of(jnp.floating):
        return None
    made, factors, is_running = op.makes[0], op.reads[0] if op.reads else op.makes[0], op.name == "cumprod"
    n = levels = 0
    if op.name == "cumprod":
        n = factors.shape[op.params["axis"]]
    elif op.name == "reduce_prod":
        n = factors.size // max(1, made.size)
    while op.name == "mul":  # a tree of halves: `jnp.prod` if it is differentiated, and `associative_scan`
        half, other = (value.back(("slice", "pad")) for value in op.reads)
        if half is not other or half is op.reads[0]:
            break
        slices = [value.maker for value in op.reads if value.maker is not None and value.maker.name == "slice"]
        is_running |= not levels and any(one.params["strides"] for one in slices)
        factors, n, levels = half, half.size // max(1, made.size), levels + 1
        if half.maker is None:
            break
        op = half.maker
    is_long = 2**levels >= LEAST_FACTORS if levels else n >= LEAST_FACTORS
    return (factors, n, is_running) if is_long else None


def _uses_of_0(product: Value) -> set[str]:
    """The use of a product of 0: "logarithm" (or a divisor), "term" (next to a number), "other"."""
    found, waiting = set[str](), [product]
    while waiting:
        value = waiting.pop()
        found |= {"other"} if value.is_output else set()
        for reader in value.readers:
            others = [read.number for read in reader.reads if read is not value]
            is_added = reader.name in ("add", "sub") and len(others) == 1 and others[0] is not None
            added = abs(others[0] or 0.0) if is_added else np.inf
            if reader.name == "log" or (reader.name == "div" and reader.reads[1] is value):
                found.add("logarithm")
            elif reader.name in PASSES or added <= NEXT_TO_NOTHING:
                waiting += reader.makes
            elif not reader.is_backward:
                found.add("term" if added < np.inf else "other")
    return found


# ---- unstable-exponential --------------------------------------------------------------------------------------------


class _Form(NamedTuple):
    written: str
    threshold: str
    """With {over}, {under} and {one}: exponents at which exp is infinite, 0, and nothing next to 1."""
    advice: str


_SUM = _Form(
    "log(sum(exp(x)))",
    "infinite if an x is above {over}, and -inf if all are below -{under}",
    "Use jax.nn.logsumexp(x, axis=…), with b=w for a sum of w * exp(x); for a mean, subtract log(n).",
)
_SUM_OF_TWO = _Form(
    "log(exp(x) + exp(y))",
    "infinite if x or y is above {over}, and -inf if both are below -{under}",
    "Use jnp.logaddexp(x, y).",
)
_LOG_SOFTMAX = _Form(
    "log(softmax(x))",
    "-inf if an x is some {under} below the largest of its row",
    "Use jax.nn.log_softmax(x, axis=…), and take the labels' elements of it.",
)
_LOG_SIGMOID = _Form("log(sigmoid(x))", "-inf if x is below -{under}", "Use jax.nn.log_sigmoid(x).")
_LOG_TANH = _Form("log(1 + tanh(x / 2))", "-inf if x is below -{one}", "Use jax.nn.log_sigmoid(x) + log(2).")
_LOG_REST = _Form("log(1 - sigmoid(x))", "-inf if x is above {one}", "Use jax.nn.log_sigmoid(-x).")
_SOFTPLUS = _Form("log(1 + exp(x))", "infinite if x is above {over}", "Use jax.nn.softplus(x).")
_SOFTMAX = _Form(
    "exp(x) / sum(exp(x))",
    "NaN if an x is above {over}, or all of them are below -{under}",
    "Use jax.nn.softmax(x, axis=…).",
)
_SIGMOID = _Form("exp(x) / (1 + exp(x))", "NaN if x is above {over}", "Use jax.nn.sigmoid(x).")
BOUNDS = names(
    "max min clamp reduce_max reduce_min argmax cummax sort tanh logistic erf sin cos abs square log log1p "
    "cumlogsumexp sqrt exp sign integer_pow pow"
)
"""Operations in an exponent that keep it small, or show that its author thought of its size."""
OWN_FILES = ("/nn/", "/scipy/", "/ops/", "random", "/image/", "special")
"""Parts of the paths of JAX's files whose functions are stable as they are."""


@rule("unstable-exponential", "do exponentials stay finite?", "warning", traced=True, pack=PACK)
def unstable_exponential(e: Evidence) -> Iterator[Match]:
    """Finds exponentials that overflow, and logarithms of numbers that underflow, if JAX has a function that
    doesn't."""
    ops = e.program.find("log", "log2", "log1p", "div", "mul")
    found = [(op, *form) for op in ops if (form := _form(op)) and _is_by_hand(op)]
    if not found:
        raise NotApplicable("no logarithm or quotient of exponentials is written in it")
    for op, form, (_, exponents, weights) in found:
        try:
            shown = _show(e, op, exponents[0], weights)
            why = f"{OF_CALL}, which were kept, it does not happen"
        except NotMeasured as error:
            shown, why = "", f"whether it happens was not seen: {error.problem}"
        # Subtracting the maximum does not help a softmax whose logarithm is taken.
        is_bounded = form is not _LOG_SOFTMAX and any(map(_is_bounded, exponents))
        dtype = exponents[0].dtype
        if not shown and (is_bounded or np.dtype(dtype).itemsize > 4):
            continue
        info = jnp.finfo(dtype)
        over, under, one = (abs(math.log(float(x))) for x in (info.max, info.tiny, info.eps / 4))
        threshold = form.threshold.format(over=f"{over:.0f}", under=f"{under:.0f}", one=f"{one:.0f}")
        yield Match(
            f"{form.written} {'is not finite' if shown else 'overflows or underflows for large x'}",
            [shown or why, f"{form.written} of {exponents[0].spec} is {threshold}"],
            form.advice,
            op=op,
            severity=None if shown else "info",
        )


def _show(e: Evidence, op: TracedOp, exponent: Value, weights: Sequence[Value]) -> str:
    """The result, if it is not finite though the exponent is; else empty."""
    given, result, *factors = (
        np.asarray(one, np.float64) for one in compute_values(e, [exponent, op.makes[0], *weights])
    )
    bad = ~np.isfinite(result)
    if not np.all(np.isfinite(given)) or not np.any(bad) or any(np.any(one <= 0) for one in factors):
        return ""
    kinds = ", ".join(sorted({str(value) for value in np.unique(result[bad])}))
    return (
        f"{OF_CALL} {int(np.sum(bad))} of {bad.size} results are {kinds}, while the exponent is from "
        f"{np.min(given):.4g} to {np.max(given):.4g}"
    )


def _is_by_hand(op: TracedOp) -> bool:
    """Did a line of the user's ask for this very operation? A call of `jax.nn.softmax` asks for another."""
    files = (frame.file_name for each in op.inwards for frame in frames_of(each))
    inside = takewhile(lambda file: is_generated(file) or owner_of(file) not in ("user", "package"), files)
    of_jax = (file.replace("\\", "/").partition("jax/_src")[2] for file in inside)
    return is_users_own(*op.inwards) and not any(part in file for file in of_jax for part in OWN_FILES)


class _Made(NamedTuple):
    """A number that is made of exponentials."""

    kind: Literal[
        "exp", "sum", "sum of two", "1 + exp", "1 + tanh", "softmax", "sigmoid", "1 / (1 + exp)", "1 - sigmoid"
    ]
    exponents: list[Value]
    weights: Sequence[Value] = ()
    """Factors of the exponentials."""


def _form(op: TracedOp) -> tuple[_Form, _Made] | None:
    """The form that an operation completes, with its exponentials."""
    if op.name in ("div", "mul"):
        made = _quotient(op)
        return (_QUOTIENTS[made.kind], made) if made is not None and made.kind in _QUOTIENTS else None
    negated = op.reads[0].made_by("neg") if op.name == "log1p" else None
    made = _made(negated.reads[0] if negated is not None else op.reads[0])
    forms = _LOGARITHMS if op.name != "log1p" else _OF_1_LESS if negated is not None else _OF_1_PLUS
    return (forms[made.kind], made) if made is not None and made.kind in forms else None


def _made(value: Value) -> _Made | None:
    way = value.back(MOVES | TAKES).view(scaled=True).way
    return next((made for one in way if one.maker is not None and (made := _made_by(one.maker))), None)


def _made_by(op: TracedOp) -> _Made | None:
    """The same of one operation; its exponentials are written by hand."""
    match op.name:
        case "exp" if _is_by_hand(op):
            return _Made("exp", [op.reads[0]])
        case "logistic":
            return _Made("sigmoid", [op.reads[0]])
        case "div" | "mul":
            return _quotient(op)
        case "sub" if op.reads[0].number == 1 and (sigmoid := _made(op.reads[1])) and sigmoid.kind == "sigmoid":
            return _Made("1 - sigmoid", sigmoid.exponents)
        case "reduce_sum" | "dot_general" | "add":
            return _sum(op)
    return None


def _sum(op: TracedOp, *, of_library: bool = False) -> _Made | None:
    """Args: `of_library`: exponentials that JAX's own functions make count, too."""
    terms = list(op.reads)
    if op.name == "reduce_sum":
        inner = op.reads[0].back().maker
        terms = list(inner.reads) if inner is not None and inner.name == "mul" else [op.reads[0]]
    exps = [(one, made) for one in terms if (made := one.made_by("exp", "tanh")) and (of_library or _is_by_hand(made))]
    exponents, others = [made.reads[0] for _, made in exps], [one for one in terms if one not in dict(exps)]
    if op.name == "add" and len(exps) == 1 and others and others[0].number == 1:
        return _Made("1 + tanh" if exps[0][1].name == "tanh" else "1 + exp", exponents)
    if any(made.name == "tanh" for _, made in exps) or len(exps) != (2 if op.name == "add" else 1):
        return None
    return _Made("sum of two" if op.name == "add" else "sum", exponents, others)


def _quotient(op: TracedOp) -> _Made | None:
    """exp(x) / sum(exp(x)), and exp(x) or 1 over 1 + exp(x), also as a product with the inverse."""
    inverses = [(one, other.made_by("div")) for one, other in (op.reads, op.reads[::-1]) if op.name == "mul"]
    pairs = [(one, made.reads[1]) for one, made in inverses if made is not None and made.reads[0].number == 1]
    for above, below in [op.reads] if op.name == "div" else pairs:
        exp, maker = above.made_by("exp"), below.view(scaled=True).source.maker
        summed = _sum(maker, of_library=True) if maker is not None and maker.name in ("add", "reduce_sum") else None
        if summed is None or len(summed.exponents) != 1:
            continue
        is_same = exp is not None and exp.reads[0] is summed.exponents[0]
        if summed.kind == "1 + exp" and (is_same or above.number == 1):
            return _Made("sigmoid" if is_same else "1 / (1 + exp)", summed.exponents)
        if summed.kind == "sum" and is_same:
            return _Made("softmax", summed.exponents)
    return None


_LOGARITHMS = {
    "sum": _SUM, "sum of two": _SUM_OF_TWO, "1 + exp": _SOFTPLUS, "softmax": _LOG_SOFTMAX,
    "sigmoid": _LOG_SIGMOID, "1 / (1 + exp)": _LOG_SIGMOID,
    "1 - sigmoid": _LOG_REST, "1 + tanh": _LOG_TANH,
}  # fmt: skip
_OF_1_PLUS, _OF_1_LESS = {"exp": _SOFTPLUS}, {"sigmoid": _LOG_REST}
_QUOTIENTS = {"softmax": _SOFTMAX, "sigmoid": _SIGMOID}


def _is_bounded(exponent: Value) -> bool:
    walked = MOVES | TAKES | {"add", "sub", "mul", "div", "neg", "reduce_sum", "select_n", "dot_general"}
    behind = list(islice(exponent.behind(walked), 60))
    makers = [one.maker for one in behind if one.maker is not None]
    bounds = (
        op.name in BOUNDS or "custom" in op.name or (op.name == "mul" and op.reads[0] is op.reads[1]) for op in makers
    )
    return len(behind) == 60 or any(bounds)


# ---- integer-overflow ------------------------------------------------------------------------------------------------

NARROW = ("int8", "int16", "uint8", "uint16")
MOST_COMPUTED = 20
OPERATIONS = {
    "add": "a sum", "sub": "a difference", "mul": "a product", "integer_pow": "a power", "reduce_sum": "a sum",
    "reduce_prod": "a product", "cumsum": "a running sum", "cumprod": "a running product",
}  # fmt: skip
SIGNS = {"add": "+", "sub": "-", "mul": "*"}
BITWISE = names(
    "and or xor not shift_left shift_right_logical shift_right_arithmetic population_count random_bits threefry2x32 "
    "bitcast_convert_type"
)


@rule("integer-overflow", "do integers stay within their range?", "warning", traced=True, pack=PACK)
def integer_overflow(e: Evidence) -> Iterator[Match]:
    """Finds integers that wrap around with the arguments of a call: 3 - 7 is 252 in uint8."""
    ops = [op for op in e.program.body.ops if _can_wrap(op) and _is_by_hand(op) and not _is_meant(op.makes[0], op.name)]
    if not ops:
        raise NotApplicable("no integers that could wrap are computed in it, outside of loops")
    for op in ops[:MOST_COMPUTED]:
        *operands, result = compute_values(e, [*op.reads, op.makes[0]])
        exact, info = _exact(op, operands), np.iinfo(op.makes[0].dtype)
        slack = 1e-6 * info.max if exact.dtype.kind == "f" else 0  # float64 rounds near the limit
        bad = np.atleast_1d((exact > info.max + slack) | (exact < info.min - slack))
        if not np.any(bad):
            continue
        at, dtype, what = tuple(np.argwhere(bad)[0]), op.makes[0].dtype, OPERATIONS[op.name]
        should, does = np.atleast_1d(exact)[at], np.atleast_1d(result)[at]
        terms = (
            [str(np.atleast_1d(np.broadcast_to(one, result.shape))[at]) for one in operands] if op.name in SIGNS else []
        )
        example = f" {SIGNS.get(op.name, '')} ".join(terms) or what
        yield Match(
            f"{what} in {dtype} wraps around",
            [
                f"{OF_CALL} {int(np.sum(bad))} of {bad.size} results wrap",
                f"{example} is {does} in {dtype}, not {should:.0f}"
                if terms
                else f"{example} is {does} in {dtype}, not {should:.6g}",
                f"{op.makes[0].spec} has numbers from {info.min} to {info.max}",
            ],
            "Convert before it: x.astype(jnp.int32), or x.astype(jnp.float32) if fractions follow."
            if str(dtype) in NARROW
            else "Compute it in float32, x.astype(jnp.float32), if seven digits are enough; otherwise in int64 with "
            "jax_enable_x64. Times and other numbers with a large offset: subtract it in NumPy first.",
            op=op,
        )
    if len(ops) > MOST_COMPUTED:
        raise NotMeasured(f"more than {MOST_COMPUTED} operations are too many to be computed again")


def _can_wrap(op: TracedOp) -> bool:
    """uint32 is what random numbers are made of; in int32, sums and differences of two are indices, nearly always."""
    dtype = str(op.makes[0].dtype) if op.name in OPERATIONS else ""
    return dtype in NARROW or (dtype == "int32" and op.name not in ("add", "sub"))


def _is_meant(value: Value, name: str) -> bool:
    """Returns whether the value is meant, because it comes out right. Such a value is a hash (with shifts, xor or a
    remainder near it), or one side of a choice. It can also be the signed number of its bits, or a running sum whose
    differences are taken."""
    near = {one.maker for one in islice(value.behind(), 60)} | {
        op for one in islice(value.ahead(), 60) for op in one.readers
    }
    for op in (op for op in near if op is not None and np.issubdtype(op.makes[0].dtype, np.integer)):
        is_floor = any(call.params.get("name") == "floor_divide" for call in op.calls)
        if op.name in BITWISE or (op.name == "rem" and not is_floor):
            return True
    waiting = [value]
    for one in waiting:
        for op in one.readers:
            is_side = op.name == "select_n" and one in op.reads[1:]
            is_signed = op.name == "convert_element_type" and np.issubdtype(op.makes[0].dtype, np.integer)
            if is_side or (op.name == "sub" and name == "cumsum"):
                return True
            if is_signed and np.dtype(op.makes[0].dtype).itemsize == np.dtype(one.dtype).itemsize:
                return True
            if op.name in MOVES | TAKES | {"concatenate", "pad"} and len(waiting) < 60:
                waiting += op.makes
    return False


def _exact(op: TracedOp, operands: Sequence[np.ndarray]) -> np.ndarray:
    """The result without a limit; in float64 if int64 might not hold it."""
    wide, floats = [one.astype(np.int64) for one in operands], operands[0].astype(np.float64)
    match op.name:
        case "add" | "sub" | "mul":
            return {"add": np.add, "sub": np.subtract, "mul": np.multiply}[op.name](*wide)
        case "integer_pow":
            return floats ** op.params["y"]
        case "reduce_sum" | "reduce_prod":
            axes = tuple(op.params["axes"])
            return np.sum(wide[0], axis=axes) if op.name == "reduce_sum" else np.prod(floats, axis=axes)
    axis, turn = op.params["axis"], np.flip if op.params["reverse"] else lambda one, axis: one
    run = (
        np.cumsum(turn(wide[0], axis), axis=axis) if op.name == "cumsum" else np.cumprod(turn(floats, axis), axis=axis)
    )
    return turn(run, axis)
