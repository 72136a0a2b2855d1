"""Finds indices outside of the axis that they index: JAX reads another element or none, and says nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchax.auditing.call_data import inputs_of_call
from benchax.auditing.dataflow import GRADIENT
from benchax.auditing.evidence import Evidence
from benchax.auditing.input_names import name_inputs
from benchax.auditing.known_indices import IndexAccess, KnownArray, KnownIndices, find_accesses
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import holds, tree_of, where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line, flow
from benchax.results.audit import Finding
from benchax.source_files import owner_of

MOST_ROWS_UNUSED = 0.1
"""Numbers from 1 to n of which more than this share is not there may be any others."""
LEAST_NUMBERS = 3
"""Different ones that begin at 1."""


@rule("out-of-bounds-index", "are indices within their axes?", "warning", needs_trace_only=True)
def out_of_bounds_index(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    given = inputs_of_call(e)
    found = find_accesses(flow(constants_as_inputs(closed)), (*closed.consts, *given))
    if not found.accesses:
        raise NotApplicable("it indexes nothing by integers that are known from one call")
    names = [*(f"constant {i}" for i in range(len(closed.consts))), *name_inputs(e, len(given))]
    outside = [_OutsideAxis(access, *_values(access)) for access in found.accesses]
    for one in first_of_each_line(one for one in outside if one.n_outside and not _is_on_purpose(one, found)):
        yield _finding(e, one, names)


@dataclass(frozen=True)
class _OutsideAxis:
    """An access whose indices lie outside, with the different indices and how often each is there."""

    access: IndexAccess
    values: np.ndarray
    counts: np.ndarray

    @property
    def step(self) -> TracedEquation:
        return self.access.step

    @property
    def last(self) -> int:
        """The highest index within."""
        return self.access.length - self.access.width

    @property
    def _is_outside(self) -> np.ndarray:
        return (self.values < 0) | (self.values > self.last)

    @property
    def outside(self) -> np.ndarray:
        return self.values[self._is_outside]

    @property
    def n_outside(self) -> int:
        return int(self.counts[self._is_outside].sum())

    @property
    def is_write(self) -> bool:
        return self.step.name not in ("gather", "dynamic_slice", "eq")

    @property
    def is_counted(self) -> bool:
        """Has the program itself counted them: an arange, or the counter of a loop?"""
        return all(isinstance(origin, str) for origin in self.access.index.origins)

    @property
    def is_from_one(self) -> bool:
        """Are they numbers from 1 to n, of which each is there, or most, where they are written to?"""
        if self.access.width != 1 or self.values.min() != 1 or self.values.max() != self.access.length:
            return False
        least = (1 - MOST_ROWS_UNUSED) * self.access.length if self.is_write else LEAST_NUMBERS
        return len(self.values) >= least


def _values(access: IndexAccess) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(access.index, KnownArray):
        return np.unique(access.index.array.astype(np.int64), return_counts=True)
    values = access.index.values.astype(np.int64)
    different, places = np.unique(values, return_inverse=True)
    return different, np.bincount(places.ravel(), weights=access.index.counts, minlength=len(different))


def _is_on_purpose(one: _OutsideAxis, found: KnownIndices) -> bool:
    # What a derivative does is done at the line of what it is of.
    if GRADIENT in one.step.scope or _is_named(one.step):
        return True
    if any(_is_mask(one, *each) for each in found.comparisons):
        return True
    # One number that is no row, beside those that are, stands for nothing: padding. So does -1.
    is_padding = len(one.outside[one.outside != -1]) <= 1 and one.counts.sum() > 1 and not one.is_counted
    return is_padding and not one.is_from_one


def _is_mask(one: _OutsideAxis, name: str, origins: frozenset[Any], bound: float | None) -> bool:
    """May the program use this comparison to leave out what lies outside?"""
    if not origins & one.access.index.origins:
        return False
    if bound is None:
        return one.is_counted or name in ("lt", "le", "gt", "ge")
    if name in ("eq", "ne"):
        return one.is_counted or bound in one.outside
    return one.is_counted or bound >= one.last or bound <= 0


def _is_named(step: TracedEquation) -> bool:
    """Does the line say what is to be done with them: mode="drop"? A package's own line is its own concern."""
    where = where_of(step.line)
    tree = tree_of(where[0]) if where is not None else None
    if where is None or tree is None or owner_of(where[0]) != "user":
        return True
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and holds(node, where[1]))
    return any(keyword.arg == "mode" for node in nodes for keyword in node.keywords)


# ---- what is said -----------------------------------------------------------------------------------------------


def _finding(e: Evidence, one: _OutsideAxis, names: Sequence[str]) -> Finding:
    access, origins = one.access, one.access.index.origins
    given = " and ".join(names[i] for i in sorted(i for i in origins if isinstance(i, int)))
    low, high, total = int(one.values.min()), int(one.values.max()), int(one.counts.sum())
    seen = [
        f"indices of {given or 'a counter'} are {low} to {high} {'at one call' if given else 'in each call'}",
        f"{_valid(access)}: indices are 0 to {one.last}",
        f"{one.n_outside} of {total} lie outside: {_done(one)}, without an error",
    ]
    if not isinstance(access.index, KnownArray) and given:
        seen.append("a loop or an index that is not known takes its part of them; all of them were looked at")
    begins = f"{given} begins at 1, and its" if one.is_from_one and given else f"{given or 'a counter'}: its"
    return out_of_bounds_index.finding(
        f"{begins} indices leave an axis of {access.length}",
        seen,
        f"{_advice(one, given, high)} {_on_purpose(one)}".strip(),
        where=where_of(one.step.line) or e.def_where,
    )


def _valid(access: IndexAccess) -> str:
    what = f"axis {access.axis} of {access.array.spec} has {access.length} elements"
    return what if access.width == 1 else f"{what}, of which {access.width} are taken from each index on"


def _done(one: _OutsideAxis) -> str:
    """What JAX does there."""
    step, mode = one.step, str(one.step.equation.params.get("mode", "CLIP"))
    if one.access.is_one_hot:
        return "their rows are all 0"
    if one.is_write and step.name != "dynamic_update_slice" and "CLIP" not in mode:
        return "what would be written there is dropped"
    if one.is_write:
        return "JAX writes at the nearest index that is within"
    if "FILL" in mode:
        return "JAX gives NaN for them, or of integers the lowest"
    return "JAX reads at the nearest index that is within instead"


def _advice(one: _OutsideAxis, given: str, high: int) -> str:
    length, width = one.access.length, one.access.width
    if one.is_from_one and given:
        return f"Indices begin at 0: take {given} - 1."
    if width > 1:
        return f"Let the last index be {one.last}, the length less the {width} that are taken, or pad the axis."
    if not given:
        return f"Let it end at {one.last}, or wrap it with % {length}."
    made = f"Look at how the numbers in {given} are made"
    return f"{made}, or make the axis {high + 1} long." if one.values.min() >= 0 else f"{made}."


def _on_purpose(one: _OutsideAxis) -> str:
    if one.access.is_one_hot:
        return ""
    how = '.add(v, mode="drop")' if one.is_write else '.get(mode="fill", fill_value=0)'
    return f"Where it is meant so, say it: x.at[i]{how}."
