"""Indices of a program that are known before it runs: of its integer arguments, constants and counters of loops.

Operations on integers whose operands are known are computed. What a loop or an unknown index takes out of a known array
is known as a set of values, and stays one through operations that keep or shift each of them. All else is unknown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.tolerance_runs import bind
from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, flow

ELEMENTWISE = (
    "add", "sub", "mul", "neg", "abs", "sign", "max", "min", "rem", "div", "and", "or", "not", "clamp", "select_n",
    "lt", "le", "gt", "ge", "eq", "ne", "convert_element_type", "shift_right_arithmetic", "shift_left", "floor",
)  # fmt: skip
KEEPS = ("reshape", "broadcast_in_dim", "squeeze", "expand_dims", "transpose", "copy", "stop_gradient", "rev")
"""Move all values."""
SELECTS = ("gather", "dynamic_slice")
"""Take some of the values of their first operand."""
EXACT = (*ELEMENTWISE, *KEEPS, *SELECTS, "slice", "concatenate", "iota", "sort", "cumsum", "pad")
COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
WRITES = ("scatter", "scatter-add", "scatter-mul", "scatter-min", "scatter-max", "scatter_add", "scatter_mul",
          "scatter_min", "scatter_max")  # fmt: skip
ONE_HOT = "_one_hot"
"""The function that `jax.nn.one_hot` jits (jax 0.6 to 0.12): it compares indices with those of all classes."""
MOST_ELEMENTS = 1 << 23
"""Of one value that is computed."""

Origin = int | str
"""An input by its position, or "count" with a number: what a program counts itself."""


@dataclass(frozen=True, eq=False)
class KnownArray:
    """A value whose every element is known."""

    array: np.ndarray
    origins: frozenset[Origin] = frozenset()


@dataclass(frozen=True, eq=False)
class KnownSet:
    """A value whose elements are some of these, as often in the array that they were taken from."""

    values: np.ndarray
    counts: np.ndarray
    origins: frozenset[Origin]
    layout: Any
    """Two with the same layout have the elements of one array in the same places."""
    is_mixed: bool = False
    """Rows of an array with several columns: one of its columns may have others."""


Known = KnownArray | KnownSet | None


class IndexAccess(NamedTuple):
    """An operation that reads or writes at known indices along one axis."""

    step: TracedEquation
    array: TracedValue
    """What is indexed; of one_hot, what it makes."""
    axis: int
    index: KnownArray | KnownSet
    width: int
    """So many elements are read or written from each index on."""

    @property
    def length(self) -> int:
        """Of the axis."""
        return self.array.shape[self.axis]

    @property
    def is_one_hot(self) -> bool:
        return self.step.name == "eq"


class IndexComparison(NamedTuple):
    """A known value is compared with a number, or with something else (None)."""

    name: str
    origins: frozenset[Origin]
    bound: float | None


@dataclass
class KnownIndices:
    """What was found in a program and in its loops and branches."""

    accesses: list[IndexAccess]
    comparisons: list[IndexComparison]


def find_accesses(program: TracedProgram, inputs: Sequence[Any]) -> KnownIndices:
    """All with known indices.

    Args:
        inputs: of the program; of those that are None nothing is known.
    """
    reader = _IndexReader()
    known = [_of_input(value, one, i) for i, (value, one) in enumerate(zip(program.inputs, inputs, strict=True))]
    reader.read(program, known)
    return KnownIndices(reader.accesses, reader.comparisons)


def _of_input(value: TracedValue, given: Any, position: int) -> Known:
    if given is None or not value.is_of(jnp.integer) or np.size(given) > MOST_ELEMENTS:
        return None
    return KnownArray(np.asarray(given).astype(value.dtype), frozenset({position}))


class _IndexReader:
    def __init__(self) -> None:
        self.accesses: list[IndexAccess] = []
        self.comparisons: list[IndexComparison] = []
        self.counts = 0

    def read(self, program: TracedProgram, inputs: Sequence[Known]) -> list[Known]:
        """Goes through the program in its order; what is known of its outputs."""
        known = {id(value): one for value, one in zip(program.inputs, inputs, strict=True)}
        makers = {id(value): step for step in program.steps for value in step.makes}
        for step in program.steps:
            reads = [_look_up(known, value) for value in step.reads]
            self.accesses += _accesses(step, reads, known, makers)
            if step.name in COMPARES:
                self._note_comparison(step, reads)
            made = self._through(step, reads)
            known |= {id(value): one for value, one in zip(step.makes, made, strict=False)}
        return [_look_up(known, value) for value in program.outputs]

    def _through(self, step: TracedEquation, reads: Sequence[Known]) -> Sequence[Known]:
        if step.name == "scan":
            return self._through_scan(step, reads)
        if step.name == "cond":
            for branch in step.equation.params["branches"]:
                self._read_body(branch, reads[1:])
            return ()
        if step.name == "while":
            consts, carry, _ = step.split_operands(reads)
            self._read_body(step.equation.params["body_jaxpr"], [*consts, *[None] * len(carry)])
            return ()
        return [_made(step, reads, self)] if len(step.makes) == 1 else ()

    def _read_body(self, closed: Any, inputs: Sequence[Known]) -> list[Known]:
        program = flow(closed)
        return self.read(program, inputs) if len(inputs) == len(program.inputs) else []

    def _through_scan(self, step: TracedEquation, reads: Sequence[Known]) -> Sequence[Known]:
        params = step.equation.params
        body = flow(params["jaxpr"])
        consts, starts, xs = step.split_operands(reads)
        values = step.split_operands(body.inputs).carry
        carried = [
            self._carried(body, value, output, start, params["length"])
            for value, output, start in zip(values, body.outputs, starts, strict=False)
        ]
        self.read(body, [*consts, *carried, *map(_rows, xs)])
        # A carry that no iteration changes keeps its value.
        return [one if one is start else None for one, start in zip(carried, starts, strict=True)]

    def _carried(
        self, body: TracedProgram, value: TracedValue, output: TracedValue, start: Known, length: int
    ) -> Known:
        if output is value:
            return start
        step = next((one for one in body.steps if any(made is output for made in one.makes)), None)
        is_count = step is not None and step.name == "add" and step.reads[0] is value and not value.shape
        if not (is_count and step is not None and isinstance(start, KnownArray) and length <= MOST_ELEMENTS):
            return None
        if step.reads[1].literal is None or not value.is_of(jnp.integer):
            return None
        values = start.array + np.arange(length, dtype=np.int64) * int(step.reads[1].literal)
        return KnownSet(values, np.ones(length, int), start.origins | {self.new_count()}, object())

    def new_count(self) -> Origin:
        self.counts += 1
        return f"count {self.counts}"

    def _note_comparison(self, step: TracedEquation, reads: Sequence[Known]) -> None:
        for one, other in (reads, tuple(reversed(reads))):
            if one is None or not one.origins:
                continue
            bound = (
                other.array.flat[0]
                if isinstance(other, KnownArray) and not other.origins and other.array.size
                else None
            )
            # x < 0 stands before every index, for those that count from the end.
            if not (step.name == "lt" and bound == 0 and one is reads[0]):
                self.comparisons.append(
                    IndexComparison(step.name, one.origins, None if bound is None else float(bound))
                )


def _look_up(known: dict[int, Known], value: TracedValue) -> Known:
    if value.literal is not None:
        return KnownArray(np.asarray(value.literal, value.dtype))
    return known.get(id(value))


def _made(step: TracedEquation, reads: Sequence[Known], reader: _IndexReader) -> Known:
    made = step.makes[0]
    origins = frozenset[Origin]().union(*(one.origins for one in reads if one is not None))
    try:
        is_small = math.prod(made.shape) <= MOST_ELEMENTS
        if step.name in EXACT and is_small and all(isinstance(one, KnownArray) for one in reads):
            arrays = [one.array for one in reads if isinstance(one, KnownArray)]
            array = np.asarray(bind(step.equation, [jnp.asarray(one) for one in arrays])[0])
            return KnownArray(array, origins | ({reader.new_count()} if step.name == "iota" else set()))
        return _made_of_sets(step, reads, origins)
    except (TypeError, ValueError, NotImplementedError):  # an operation that does not go alone: then it is not known
        return None


def _made_of_sets(step: TracedEquation, reads: Sequence[Known], origins: frozenset[Origin]) -> Known:
    first = reads[0] if reads else None
    if step.name in KEEPS and isinstance(first, KnownSet):
        layout = (first.layout, step.name, step.makes[0].shape, str(step.equation.params.get("broadcast_dimensions")))
        return KnownSet(first.values, first.counts, first.origins, layout, first.is_mixed)
    if step.name in SELECTS and first is not None:
        # Of an array with several columns one may be taken: only where it is unknown, it may be any of them.
        is_any = all(not isinstance(one, KnownArray) for one in reads[1:])
        return _selected(first) if is_any or not isinstance(first, KnownSet) or not first.is_mixed else None
    if step.name == "slice" and isinstance(first, KnownSet) and not first.is_mixed:
        return KnownSet(first.values, first.counts, first.origins, object())
    if step.name in ELEMENTWISE:
        return _elementwise(step, reads, origins)
    return None


def _selected(one: KnownArray | KnownSet) -> KnownSet | None:
    """Some of its elements, nobody knows which."""
    if isinstance(one, KnownSet):
        return KnownSet(one.values, one.counts, one.origins, object(), one.is_mixed)
    if not one.origins or one.array.dtype.kind not in "iu":
        return None
    values, counts = np.unique(one.array, return_counts=True)
    is_mixed = sum(n > 1 for n in one.array.shape) > 1
    return KnownSet(values, counts, one.origins, object(), is_mixed)


def _rows(one: Known) -> Known:
    """What a loop over the first axis is given."""
    return None if one is None else _selected(one)


def _elementwise(step: TracedEquation, reads: Sequence[Known], origins: frozenset[Origin]) -> Known:
    sets = [one for one in reads if isinstance(one, KnownSet)]
    if not sets or len({one.layout for one in sets}) > 1 or any(one is None for one in reads):
        return None
    n, columns = len(sets[0].values), list[Any]()
    for one, value in zip(reads, step.reads, strict=True):
        if isinstance(one, KnownArray) and len(np.unique(one.array)) != 1:
            return None
        column = one.values if isinstance(one, KnownSet) else np.full(n, one.array.flat[0] if one else 0)
        columns.append(jnp.asarray(column, value.dtype))
    made = np.asarray(step.equation.primitive.bind(*columns, **step.equation.params))
    is_mixed = any(one.is_mixed for one in sets)
    return KnownSet(made, sets[0].counts, origins, sets[0].layout, is_mixed)


# ---- indices of operations --------------------------------------------------------------------------------------


def _accesses(
    step: TracedEquation, reads: Sequence[Known], known: dict[int, Known], makers: dict[int, TracedEquation]
) -> Iterator[IndexAccess]:
    for axis, width, index in _indices(step, reads, known, makers):
        if index is not None and index.origins:
            yield IndexAccess(step, step.makes[0] if step.name == "eq" else step.reads[0], axis, index, width)


def _indices(
    step: TracedEquation, reads: Sequence[Known], known: dict[int, Known], makers: dict[int, TracedEquation]
) -> Iterator[tuple[int, int, Known]]:
    """(axis, width, index)."""
    params = step.equation.params
    if step.name == "dynamic_slice":
        yield from zip(range(len(reads) - 1), params["slice_sizes"], reads[1:], strict=True)
    elif step.name == "dynamic_update_slice":
        yield from zip(range(len(reads) - 2), step.reads[1].shape, reads[2:], strict=True)
    elif step.name == "gather":
        axes = params["dimension_numbers"].start_index_map
        columns = _columns(step.reads[1], len(axes), known, makers)
        yield from ((int(axis), params["slice_sizes"][axis], one) for axis, one in zip(axes, columns, strict=True))
    elif step.name in WRITES:
        axes = params["dimension_numbers"].scatter_dims_to_operand_dims
        widths = _windows(step)
        columns = _columns(step.reads[1], len(axes), known, makers)
        yield from ((int(axis), widths[axis], one) for axis, one in zip(axes, columns, strict=True))
    elif step.name == "eq" and any(call.params.get("name") == ONE_HOT for call in step.calls):
        yield _longest_axis(step.reads[1].shape), 1, reads[0]


def _longest_axis(shape: Sequence[int]) -> int:
    """Of classes, which lie along one axis, and once in each of the others."""
    return max(range(len(shape)), key=lambda axis: shape[axis])


def _windows(step: TracedEquation) -> list[int]:
    """How many elements of each axis of its operand a scatter writes at each index."""
    numbers = step.equation.params["dimension_numbers"]
    sizes = iter([step.reads[2].shape[axis] for axis in numbers.update_window_dims])
    single = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    return [1 if axis in single else next(sizes, 1) for axis in range(len(step.reads[0].shape))]


def _columns(value: TracedValue, n: int, known: dict[int, Known], makers: dict[int, TracedEquation]) -> Sequence[Known]:
    """The index along each axis, which JAX puts side by side in one array."""
    whole, maker = _look_up(known, value), makers.get(id(value))
    if isinstance(whole, KnownArray):
        return [KnownArray(whole.array[..., i], whole.origins) for i in range(n)]
    if n == 1:
        return [whole]
    if maker is not None and maker.name == "concatenate" and len(maker.reads) == n:
        return [_look_up(known, one) for one in maker.reads]
    return [None] * n
