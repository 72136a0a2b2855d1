"""Finds products with a matrix that is nearly all zeros: an adjacency, a finite difference, an incidence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, closed_jaxpr, first_of_each_line, flow
from benchax.auditing.work import elements
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, percent, size

ADVICE = (
    "Keep the entries that are not zero: jax.ops.segment_sum(values[:, None] * x[columns], rows, n), or "
    "jax.experimental.sparse.BCOO.fromdense(a) @ x. Of a banded matrix, as of differences on a grid, write the "
    "neighbours out: x[1:] - x[:-1], or jnp.roll."
)
LEAST_ELEMENTS = 1 << 18
"""Of the matrix; with less the product is quick as it is."""
MOST_SHARE = 1 / 128
"""Of entries that are not zero: on a core of a CPU both ways take the same time at about 1/64 (f32, 600 to 4000 rows,
1 to 64 columns)."""
MOVES = ("convert_element_type", "transpose", "copy", "copy_p", "neg", "stop_gradient", "sharding_constraint")


@rule("sparse-matmul", "are products with sparse matrices done on what is not zero?", "warning", needs_trace_only=True)
def sparse_matmul(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    program, inputs = flow(constants_as_inputs(closed)), (*closed.consts, *e.data)
    if len(inputs) != len(program.inputs):
        raise NotApplicable("its arguments were not kept")
    first = len(closed.consts)
    carried = {at for at, _ in e.carried.positions}
    sparse = {
        id(value): _Sparse(array, entries, is_the_same=at < first or at - first in e.repeated_inputs)
        for at, (value, array) in enumerate(zip(program.inputs, inputs, strict=True))
        if at - first not in carried and (entries := _entries(array)) is not None
    }
    for found in first_of_each_line(_products(program, sparse)):
        yield _finding(e, found)


class _Sparse(NamedTuple):
    """A matrix of which few entries are not zero."""

    matrix: Any
    entries: int
    is_the_same: bool
    """In each call that was seen."""


class _Product(NamedTuple):
    step: TracedEquation
    factor: TracedValue
    sparse: _Sparse
    columns: int
    """Of what it is multiplied with."""


def _entries(array: Any) -> int | None:
    """Those that are not zero, of a matrix where they are few; nothing but zeros is what is to be filled."""
    if (
        getattr(array, "ndim", 0) != 2
        or array.size < LEAST_ELEMENTS
        or not jax.numpy.issubdtype(array.dtype, np.number)
    ):
        return None
    entries = int(np.count_nonzero(np.asarray(array)))
    return entries if 0 < entries <= MOST_SHARE * array.size else None


def _products(program: TracedProgram, sparse: Mapping[int, _Sparse], in_loop: bool = False) -> Iterator[_Product]:
    known = dict(sparse)
    for step in program.steps:
        here = [known.get(id(value)) for value in step.reads]
        if step.name in MOVES and here[0] is not None:
            known[id(step.makes[0])] = here[0]
        if step.name == "dot_general":
            for at, one in enumerate(here):
                # What is multiplied once, in a program that is called once, may be as sparse as it is for once.
                if one is not None and (in_loop or one.is_the_same) and not any(_batch_axes(step)):
                    factor = step.reads[at]
                    columns = elements(step.makes[0]) // max(1, factor.shape[_kept_axis(step, at)])
                    yield _Product(step, factor, one, columns)
        for closed, reads, is_loop in _inner(step):
            inside = flow(closed)
            given = {id(v): known[id(r)] for v, r in zip(inside.inputs, reads, strict=False) if id(r) in known}
            yield from _products(inside, given, in_loop or is_loop) if given else ()


def _batch_axes(step: TracedEquation) -> Any:
    return step.equation.params["dimension_numbers"][1]


def _kept_axis(step: TracedEquation, at: int) -> int:
    """The axis of the matrix that is not summed over."""
    contracted = step.equation.params["dimension_numbers"][0][at]
    return 1 - contracted[0] if len(contracted) == 1 else 0


def _inner(step: TracedEquation) -> Iterator[tuple[Any, Sequence[Any], bool]]:
    """(a program in it, what its first inputs are outside and stay, is it a loop?)"""
    params = step.equation.params
    if step.name in ("scan", "while"):
        body = params["jaxpr" if step.name == "scan" else "body_jaxpr"]
        yield body, step.split_operands(step.reads).consts, True
    elif step.name == "cond":
        yield from ((branch, step.reads[1:], False) for branch in params["branches"])


def _finding(e: Evidence, found: _Product) -> Finding:
    step, factor, sparse, columns = found
    matrix = sparse.matrix
    tried = _try_entries(e, matrix, columns)
    return sparse_matmul.finding(
        f"multiplies with {factor.spec}, of which {percent(sparse.entries / matrix.size)} is not zero",
        [
            f"{count(sparse.entries)} of {count(matrix.size)} entries, in {size(matrix.nbytes)}{step.at}",
            tried.sentence,
        ],
        ADVICE,
        where=where_of(step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this product"),
    )


def _try_entries(e: Evidence, matrix: Any, columns: int) -> Tried:
    dense = np.asarray(matrix)
    rows, places = np.nonzero(dense)
    x = np.ones((dense.shape[1], columns), dense.dtype)
    by_matrix = make_case(lambda a, x: a @ x, (dense, x), name="by_matrix")
    by_entries = make_case(
        lambda values, rows, places, x: jax.ops.segment_sum(values[:, None] * x[places], rows, dense.shape[0]),
        (dense[rows, places], rows, places, x),
        name="by_entries",
    )
    return try_variant(e, "by its entries", by_entries, by_matrix)
