"""Integer operations whose results may not fit their dtype, in a traced program, and what they are without a limit.

Integers of XLA wrap: 3 - 7 is 252 in uint8. Left out is what cannot wrap by its operands' ranges, what is made for
wrapping (hashes: with shifts, xor or a remainder beside it), one of two sides that `jnp.where` chooses from, and
uint32, which is what random numbers are made of.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.exponentials import is_by_hand
from benchax.auditing.traced import TracedEquation, TracedValue

NARROW = ("int8", "int16", "uint8", "uint16")
DTYPES = (*NARROW, "int32")
SMALL_STEPS = ("add", "sub")
"""Of int32 these are indices and counters, nearly always."""
OPERATIONS = (*SMALL_STEPS, "mul", "integer_pow", "reduce_sum", "reduce_prod", "cumsum", "cumprod")
PASSES = ("convert_element_type", "copy", "reshape", "squeeze", "expand_dims", "broadcast_in_dim", "transpose", "slice")
BITWISE = (
    "and", "or", "xor", "not", "shift_left", "shift_right_logical", "shift_right_arithmetic", "population_count",
    "random_bits", "threefry2x32", "bitcast_convert_type",
)  # fmt: skip
MOST_WALKED = 60
MOST_DEPTH = 6
"""Operations in a row whose ranges are looked at; a chain of sums would double with each."""

Range = tuple[float, float]


class IntegerStep(NamedTuple):
    """An operation that may wrap."""

    body: Body
    step: TracedEquation

    @property
    def dtype(self) -> str:
        return str(self.step.makes[0].dtype)


def integer_steps(closed: Any) -> Iterator[IntegerStep]:
    """Those of the user's own lines in the outermost program."""
    body = next(iter(bodies(closed)))
    for step in body.program.steps:
        if not _is_of_kind(step) or not is_by_hand(step) or _fits(_range_of_step(body, step, 0), step):
            continue
        if not _is_harmless(body, step) and not _is_hash(body, step.makes[0]):
            yield IntegerStep(body, step)


def _is_of_kind(step: TracedEquation) -> bool:
    dtype = str(step.makes[0].dtype) if step.makes else ""
    return step.name in OPERATIONS and dtype in DTYPES and (dtype in NARROW or step.name not in SMALL_STEPS)


def exact(step: TracedEquation, operands: Sequence[np.ndarray]) -> np.ndarray:
    """What it would be without a limit, of the operands' values; in float64 where int64 may not hold it."""
    wide, params = [one.astype(np.int64) for one in operands], step.equation.params
    match step.name:
        case "add":
            return wide[0] + wide[1]
        case "sub":
            return wide[0] - wide[1]
        case "mul":
            return wide[0] * wide[1]
        case "integer_pow":
            return operands[0].astype(np.float64) ** params["y"]
        case "reduce_sum":
            return np.sum(wide[0], axis=tuple(params["axes"]))
        case "reduce_prod":
            return np.prod(operands[0].astype(np.float64), axis=tuple(params["axes"]))
        case _:
            backwards = np.flip(wide[0], params["axis"]) if params["reverse"] else wide[0]
            run = np.cumsum if step.name == "cumsum" else np.cumprod
            found = run(backwards.astype(np.float64) if run is np.cumprod else backwards, axis=params["axis"])
            return np.flip(found, params["axis"]) if params["reverse"] else found


def wraps(step: TracedEquation, unlimited: np.ndarray) -> np.ndarray:
    """Where it does not fit. What float64 rounds near the limit is given the benefit of the doubt."""
    info = np.iinfo(step.makes[0].dtype)
    slack = 1e-6 * info.max if unlimited.dtype.kind == "f" else 0
    return (unlimited > info.max + slack) | (unlimited < info.min - slack)


# ---- what cannot wrap -------------------------------------------------------------------------------------------


def _fits(found: Range, step: TracedEquation) -> bool:
    info = np.iinfo(step.makes[0].dtype)
    return info.min <= found[0] and found[1] <= info.max


def _range_of_step(body: Body, step: TracedEquation, depth: int) -> Range:
    (low, high), *others = [_range(body, one, depth + 1) for one in step.reads]
    if step.name in ("reduce_sum", "cumsum"):
        n = math.prod(step.reads[0].shape) / max(math.prod(step.makes[0].shape), 1)
        n = step.reads[0].shape[step.equation.params["axis"]] if step.name == "cumsum" else n
        return min(low, low * n), max(high, high * n)
    if step.name in SMALL_STEPS:
        first, last = others[0] if step.name == "add" else (-others[0][1], -others[0][0])
        return low + first, high + last
    if step.name == "mul":
        ends = [a * b for a in (low, high) for b in others[0]]
        return min(ends), max(ends)
    return -math.inf, math.inf


def _range(body: Body, value: TracedValue, depth: int) -> Range:
    """Between what a value is, as far as the program tells without its inputs."""
    if value.literal is not None and np.ndim(value.literal) == 0:
        return float(value.literal), float(value.literal)
    own = _range_of_dtype(value.dtype)
    step = body.maker(value) if depth < MOST_DEPTH else None
    if step is None:
        return own
    found = own
    if step.name in PASSES and str(step.reads[0].dtype) in ("bool", *DTYPES):
        found = _range(body, step.reads[0], depth + 1)
    elif step.name == "iota":
        found = (0, step.equation.params["shape"][step.equation.params["dimension"]])
    elif step.name in OPERATIONS:
        found = _range_of_step(body, step, depth)
    return found if own[0] <= found[0] and found[1] <= own[1] else own


def _range_of_dtype(dtype: Any) -> Range:
    if str(dtype) == "bool":
        return 0, 1
    if np.issubdtype(dtype, np.integer):
        return float(np.iinfo(dtype).min), float(np.iinfo(dtype).max)
    return -math.inf, math.inf


def _is_harmless(body: Body, wrapped: TracedEquation) -> bool:
    """Is it one side of a choice, as in jnp.where(a > b, a - b, b - a) and for indices from the end, taken as the
    signed number of its bits, or a running sum of which differences are taken, which come out right all the same?"""
    waiting = [(wrapped.makes[0], step) for step in body.readers(wrapped.makes[0])]
    for value, step in waiting:
        if step.name == "select_n" and any(read is value for read in step.reads[1:]):
            return True
        if step.name == "sub" and wrapped.name == "cumsum":
            return True
        if step.name == "convert_element_type" and _is_same_size(value, step.makes[0]):
            return True
        if step.name in (*PASSES, "gather", "dynamic_slice", "concatenate", "pad") and len(waiting) < MOST_WALKED:
            waiting += [(step.makes[0], each) for each in body.readers(step.makes[0])]
    return False


def _is_same_size(value: TracedValue, converted: TracedValue) -> bool:
    return _is_integer(converted) and np.dtype(value.dtype).itemsize == np.dtype(converted.dtype).itemsize


def _is_hash(body: Body, value: TracedValue) -> bool:
    """Are bits shifted or mixed before it or after it, or is a remainder taken of it?"""
    before = [step for one in _around(body, value, backwards=True) if (step := body.maker(one)) is not None]
    after = [step for one in _around(body, value, backwards=False) for step in body.readers(one)]
    is_mixed = any(step.name in BITWISE and _is_integer(step.makes[0]) for step in (*before, *after))
    return is_mixed or any(step.name == "rem" and not _is_of_floor(step) for step in after)


def _around(body: Body, value: TracedValue, *, backwards: bool) -> list[TracedValue]:
    """Integers that it is made of, or that are made of it."""
    found, seen = [value], {id(value)}
    for one in found:
        maker = body.maker(one)
        near = (maker.reads if maker else ()) if backwards else [v for s in body.readers(one) for v in s.makes]
        new = [v for v in near if _is_integer(v) and id(v) not in seen]
        seen |= {id(v) for v in new}
        found += new if len(found) < MOST_WALKED else []
    return found


def _is_integer(value: TracedValue) -> bool:
    return np.issubdtype(value.dtype, np.integer) if isinstance(value.dtype, np.dtype) else False


def _is_of_floor(step: TracedEquation) -> bool:
    return any(call.params.get("name") == "floor_divide" for call in step.calls)
