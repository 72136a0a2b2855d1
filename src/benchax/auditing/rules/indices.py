"""Indices outside of the axis that they index: JAX reads another element or none, and reports nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules.numbers import inputs_of_call
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.auditing.traced import Match, name_inputs, traced_rule
from benchax.program.evaluate import bind
from benchax.program.index import ELEMENTWISE, KEEPS, Body, TracedOp, TracedProgram, Value
from benchax.source_files import owner_of

MOVES = KEEPS | {"broadcast_in_dim", "rev"}
SELECTS = ("gather", "dynamic_slice")
"""Operations that take some of the values of their first operand."""
EXACT = ELEMENTWISE | MOVES | {*SELECTS, "slice", "concatenate", "iota", "sort", "cumsum", "pad"}
COMPARES = ("lt", "le", "gt", "ge", "eq", "ne")
ONE_HOT = "_one_hot"
"""The function that `jax.nn.one_hot` jits (jax 0.6 to 0.12): it compares indices with those of all classes."""
MOST_ELEMENTS = 1 << 23
"""Elements of one value that is computed."""

Origin = int | str
"""An input by its position, or "count" with a number: what a program counts itself."""


@dataclass(frozen=True, eq=False)
class KnownIndex:
    """The known facts about a value."""

    array: np.ndarray
    """Its elements; of a set, elements of the array that it was taken from, in one axis."""
    origins: frozenset[Origin] = frozenset()
    layout: Any = None
    """None: `array` is the value itself. Two sets with the same layout have the elements of one array in the same
    places."""
    is_mixed: bool = False
    """Rows of an array with several columns: one of its columns can have other elements."""

    @property
    def is_set(self) -> bool:
        return self.layout is not None


class IndexAccess(NamedTuple):
    """An operation that reads or writes at known indices along one axis."""

    op: TracedOp
    array: Value
    """The indexed array; for one_hot, its result."""
    axis: int
    index: KnownIndex
    width: int
    """This many elements are read or written from each index on."""

    @property
    def length(self) -> int:
        """Elements along the axis."""
        return self.array.shape[self.axis]


class IndexComparison(NamedTuple):
    """A known value is compared with a number, or with something else (None)."""

    name: str
    origins: frozenset[Origin]
    bound: float | None


class KnownIndices:
    """All accesses with known indices of a program, and comparisons of known values.

    Args:
        inputs: of the program, its constants first; None if nothing is known of one.
    """

    def __init__(self, program: TracedProgram, inputs: Sequence[Any]) -> None:
        self.accesses: list[IndexAccess] = []
        self.comparisons: list[IndexComparison] = []
        self._counts = 0
        self._known: dict[Value, KnownIndex | None] = {}
        for i, (value, given) in enumerate(zip((*program.consts, *program.inputs), inputs, strict=True)):
            if given is not None and value.is_of(jnp.integer) and np.size(given) <= MOST_ELEMENTS:
                self._known[value] = KnownIndex(np.asarray(given).astype(value.dtype), frozenset({i}))
        for body in program.bodies:  # each before what is nested in it
            self._enter(body)
            for op in body.ops:
                self._take(op)

    def _enter(self, body: Body) -> None:
        if body.op is not None and body.kind == "scan":
            _, _, xs = body.op.split(body.op.reads)
            for value, given in zip(body.op.split(body.inputs).xs, xs, strict=True):
                self._known[value] = _some_of(self.of(given))
            for start, taken, returned in body.carries:
                self._known[taken] = self._counted(body, self.of(start), taken, returned)

    def of(self, value: Value) -> KnownIndex | None:
        """Returns the known facts about a value."""
        if value.literal is not None:
            return KnownIndex(np.asarray(value.literal, value.dtype))
        if value not in self._known and value.outer is not None:
            return self.of(value.outer)
        return self._known.get(value)

    def _counted(self, body: Body, start: KnownIndex | None, taken: Value, returned: Value) -> KnownIndex | None:
        """The values of a counter in all iterations; a carry that no iteration changes keeps its value."""
        op, length = returned.maker, body.trips or 0
        if returned is taken:
            return start
        step = op.reads[1].literal if op is not None and op.name == "add" and op.reads[0] is taken else None
        if start is None or start.is_set or step is None or taken.shape or not taken.is_of(jnp.integer):
            return None
        values = start.array + np.arange(min(length, MOST_ELEMENTS), dtype=np.int64) * int(step)
        return KnownIndex(values, start.origins | {self._count()}, object())

    def _count(self) -> Origin:
        self._counts += 1
        return f"count {self._counts}"

    def _take(self, op: TracedOp) -> None:
        reads = [self.of(value) for value in op.reads]
        array = op.makes[0] if op.name == "eq" else op.reads[0] if op.reads else None
        for axis, width, index in self._indices(op, reads):
            if index is not None and index.origins and array is not None:
                self.accesses.append(IndexAccess(op, array, axis, index, width))
        if op.name in COMPARES:
            self._compare(op, reads)
        if op.name == "scan":
            carries = op.bodies[0].carries
            made = [self.of(start) if returned is taken else None for start, taken, returned in carries]
            self._known.update(zip(op.makes, made, strict=False))
        elif len(op.makes) == 1 and not op.bodies:
            self._known[op.makes[0]] = self._make(op, reads)

    def _compare(self, op: TracedOp, reads: Sequence[KnownIndex | None]) -> None:
        for one, other in (reads, reads[::-1]):
            is_number = other is not None and not other.is_set and not other.origins and other.array.size
            bound = float(other.array.flat[0]) if other is not None and is_number else None
            # JAX compares every index with 0, for those that count from the end.
            if one is not None and one.origins and not (op.name == "lt" and bound == 0 and one is reads[0]):
                self.comparisons.append(IndexComparison(op.name, one.origins, bound))

    def _make(self, op: TracedOp, reads: Sequence[KnownIndex | None]) -> KnownIndex | None:
        known = [one for one in reads if one is not None]
        origins = frozenset[Origin]().union(*(one.origins for one in known))
        is_exact = op.name in EXACT and len(known) == len(reads) and not any(one.is_set for one in known)
        try:
            if is_exact and op.makes[0].size <= MOST_ELEMENTS:
                made = np.asarray(bind(op.equation, [jnp.asarray(one.array) for one in known])[0])
                return KnownIndex(made, origins | ({self._count()} if op.name == "iota" else set()))
            return _make_of_sets(op, reads, origins)
        except (TypeError, ValueError, NotImplementedError):  # an operation that doesn't run alone
            return None

    def _indices(
        self, op: TracedOp, reads: Sequence[KnownIndex | None]
    ) -> Iterator[tuple[int, int, KnownIndex | None]]:
        """(axis, width, index)."""
        if op.name == "dynamic_slice":
            yield from zip(range(len(reads) - 1), op.params["slice_sizes"], reads[1:], strict=True)
        elif op.name == "dynamic_update_slice":
            yield from zip(range(len(reads) - 2), op.reads[1].shape, reads[2:], strict=True)
        elif op.name == "gather":
            axes, sizes = op.params["dimension_numbers"].start_index_map, op.params["slice_sizes"]
            columns = self._columns(op.reads[1], len(axes))
            yield from ((int(axis), sizes[axis], one) for axis, one in zip(axes, columns, strict=True))
        elif op.name.startswith("scatter"):
            axes, widths = op.params["dimension_numbers"].scatter_dims_to_operand_dims, _windows(op)
            columns = self._columns(op.reads[1], len(axes))
            yield from ((int(axis), widths[axis], one) for axis, one in zip(axes, columns, strict=True))
        elif op.name == "eq" and any(call.params.get("name") == ONE_HOT for call in op.calls):
            classes = op.reads[1].shape  # they are along one axis, and once in each of the others
            yield max(range(len(classes)), key=lambda axis: classes[axis]), 1, reads[0]

    def _columns(self, value: Value, n: int) -> Sequence[KnownIndex | None]:
        """The index along each axis; JAX puts these side by side in one array."""
        whole, maker = self.of(value), value.maker
        if whole is not None and not whole.is_set:
            return [KnownIndex(whole.array[..., i], whole.origins) for i in range(n)]
        if n > 1 and maker is not None and maker.name == "concatenate" and len(maker.reads) == n:
            return [self.of(one) for one in maker.reads]
        return [whole] if n == 1 else [None] * n


def _windows(scatter: TracedOp) -> list[int]:
    """How many elements of each axis of its operand a scatter writes at each index."""
    numbers = scatter.params["dimension_numbers"]
    sizes = iter([scatter.reads[2].shape[axis] for axis in numbers.update_window_dims])
    single = {*numbers.inserted_window_dims, *getattr(numbers, "operand_batching_dims", ())}
    return [1 if axis in single else next(sizes, 1) for axis in range(len(scatter.reads[0].shape))]


def _some_of(one: KnownIndex | None) -> KnownIndex | None:
    """Some of its elements; nothing tells which."""
    if one is None or one.is_set:
        return one and replace(one, layout=object())
    if not one.origins or one.array.dtype.kind not in "iu":
        return None
    return KnownIndex(one.array.ravel(), one.origins, object(), sum(n > 1 for n in one.array.shape) > 1)


def _make_of_sets(op: TracedOp, reads: Sequence[KnownIndex | None], origins: frozenset[Origin]) -> KnownIndex | None:
    first = reads[0] if reads else None
    if op.name in MOVES and first is not None and first.is_set:
        moved = (first.layout, op.name, op.makes[0].shape, str(op.params.get("broadcast_dimensions")))
        return replace(first, layout=moved)
    if first is not None and (op.name in SELECTS or (op.name == "slice" and first.is_set)):
        # One column of several can be taken: only an unknown index takes any of them.
        is_any = op.name != "slice" and all(one is None or one.is_set for one in reads[1:])
        return _some_of(first) if is_any or not first.is_mixed else None
    sets = [one for one in reads if one is not None and one.is_set]
    if op.name not in ELEMENTWISE or None in reads or not sets or len({one.layout for one in sets}) > 1:
        return None
    columns: list[Any] = []
    for one, value in zip(reads, op.reads, strict=True):
        if one is not None and not one.is_set and len(np.unique(one.array)) != 1:
            return None
        columns.append(
            one
            and jnp.asarray(one.array if one.is_set else np.full_like(sets[0].array, one.array.flat[0], value.dtype))
        )
    typed = [column.astype(value.dtype) for column, value in zip(columns, op.reads, strict=True)]
    made = np.asarray(op.equation.primitive.bind(*typed, **op.params))
    return KnownIndex(made, origins, sets[0].layout, any(one.is_mixed for one in sets))


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
    names = [*(f"constant {i}" for i in range(len(program.consts))), *name_inputs(e)]
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
