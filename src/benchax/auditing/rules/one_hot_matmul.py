"""Finds products of a one-hot array and a table, which only look up rows of the table."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, size

LARGE_BYTES = 1 << 20
"""Of the one-hot array; a smaller product is quick."""
FEW_ROWS = 64
SUMS = ("add", "sub")
CARRIES_ON = ("convert_element_type", "reshape", "broadcast_in_dim", "squeeze", "expand_dims", "copy", "stop_gradient")


@rule("one-hot-matmul", "does it multiply one-hot arrays to look up rows?", "warning", needs_trace_only=True)
def one_hot_matmul(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    known: set[int] = set()
    for body in bodies(constants_as_inputs(closed_jaxpr(e))):
        known |= _counts_given(e, body, known)
        for step in body.program.steps:
            # A derivative multiplies once more, on the same line; the advice there is the same.
            if step.name != "dot_general" or GRADIENT in step.scope or step.line in told:
                continue
            found = _one_hot_operand(body, step, known)
            if found is not None:
                told.add(step.line)
                yield _finding(e, step, *found)


def _counts_given(e: Evidence, body: Body, known: AbstractSet[int]) -> set[int]:
    """Inputs of a body that are 0, 1, 2, …, by their id: arguments and constants, of the whole program, and what its
    loops are given of them."""
    inputs = body.program.inputs
    if body.of is not None:
        # Constants of a scan are its first operands; of other bodies it is not followed.
        given = body.of.reads[: body.constants] if body.of.name == "scan" else ()
        return {id(own) for own, outer in zip(inputs, given, strict=False) if id(outer) in known}
    arrays = (*closed_jaxpr(e).consts, *e.data)
    return {id(value) for value, array in zip(inputs, arrays, strict=False) if _is_arange(value, array)}


def _is_arange(value: TracedValue, array: Any) -> bool:
    is_whole = len(value.shape) == 1 and value.shape == getattr(array, "shape", None)
    return is_whole and np.array_equal(np.asarray(array), np.arange(value.shape[0]))


def _one_hot_operand(
    body: Body, step: TracedEquation, known: AbstractSet[int]
) -> tuple[TracedValue, TracedValue, int] | None:
    """(the one-hot operand, the other one, how many rows the table has), where rows are what is summed over."""
    (contracted, batched) = step.equation.params["dimension_numbers"]
    if any(batched[0]):
        return None
    for side in (0, 1):
        hot, table = step.reads[side], step.reads[1 - side]
        if len(contracted[side]) != 1 or hot.size_bytes < LARGE_BYTES:
            continue
        axis = contracted[side][0]
        if hot.shape[axis] >= FEW_ROWS and _is_one_hot(body, hot, axis, known):
            return hot, table, hot.shape[axis]
    return None


def _is_one_hot(body: Body, hot: TracedValue, axis: int, known: AbstractSet[int]) -> bool:
    """Is it `x[..., None] == arange(n)`, along this axis, or the sum or difference of two such arrays?"""
    step = body.maker(body.through(hot, ("convert_element_type", "copy", "neg", "stop_gradient")))
    if step is not None and step.name in SUMS:
        return all(_is_one_hot(body, value, axis, known) for value in step.reads)
    if step is None or step.name != "eq" or len(step.reads) != 2:
        return False
    pairs = (step.reads, step.reads[::-1])
    return any(
        _is_count(body, index, known) and body.varying_axes(index) == {axis} and axis not in body.varying_axes(other)
        for index, other in pairs
    )


def _is_count(body: Body, value: TracedValue, known: AbstractSet[int]) -> bool:
    made = body.through(value, CARRIES_ON)
    step = body.maker(made)
    return id(made) in known or (step is not None and step.name == "iota")


def _finding(e: Evidence, step: TracedEquation, hot: TracedValue, table: TracedValue, rows: int) -> Finding:
    made = step.makes[0]
    per_row = made.size_bytes // max(1, made.dtype.itemsize)
    flops = 2 * per_row * rows
    tried = _try_lookup(e, hot, table, rows)
    seen = [f"{hot.spec} of zeros and ones, {size(hot.size_bytes)}, times {table.spec}: {count(flops, 'FLOP')}"]
    seen.append(tried.sentence)
    return one_hot_matmul.finding(
        f"looks up rows of {table.spec} by a product with a one-hot array",
        seen,
        "Index the table: table[index], or jnp.take(table, index, axis=0) (flax.linen.Embed, equinox.nn.Embedding). "
        "Its gradient adds into the rows that were used. In place of (one_hot(i) - one_hot(j)) @ table write table[i] "
        "- table[j].",
        where=where_of(step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this product"),
    )


def _try_lookup(e: Evidence, hot: TracedValue, table: TracedValue, rows: int) -> Tried:
    taken = hot.size_bytes // hot.dtype.itemsize // rows
    width = table.size_bytes // table.dtype.itemsize // rows
    inputs = (f"{hot.dtype}[{rows},{width}]", jnp.arange(taken) * 7 % rows)
    product = make_case(_multiply, inputs, name="one-hot product")
    return try_variant(e, "a lookup", make_case(_look_up, inputs, name="lookup"), product)


def _multiply(table: jax.Array, index: jax.Array) -> jax.Array:
    return jax.nn.one_hot(index, table.shape[0], dtype=table.dtype) @ table


def _look_up(table: jax.Array, index: jax.Array) -> jax.Array:
    return jnp.take(table, index, axis=0)
