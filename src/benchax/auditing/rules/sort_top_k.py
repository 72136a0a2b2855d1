"""Finds sorts of which only a few elements at an end are used: what `jax.lax.top_k` selects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import elements, operations
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.results.audit import Finding

FEW = 8
"""One element in so many of a row is used at most. Of 64 rows of 4096 float32, a sort takes 71 ms on two cores, and
`top_k` 1 ms for 64 elements and 10 ms for 512 (jaxlib 0.10.2, CPU)."""
LEAST_OPERATIONS = 1 << 18
"""Comparisons of the sort; a smaller one takes well under a millisecond."""
GAINS = "float32"
"""The one dtype of which XLA:CPU selects without sorting: `top_k` of f64, bf16, f16 and int32 is as slow as a sort."""


@dataclass(frozen=True)
class _Selection:
    """A sort, and how many elements at one end are used; 0 at the other."""

    step: TracedEquation
    rows: int
    length: int
    smallest: int
    largest: int


@rule("sort-top-k", "are the few largest elements selected without a sort?", "warning", needs_trace_only=True)
def sort_top_k(e: Evidence) -> Iterable[Finding]:
    found = [one for body in bodies(closed_jaxpr(e)) for one in _selections(body)]
    if found and e.platform != "cpu":
        raise NotMeasured(f"what top_k takes beside a sort is known of CPUs, not of {e.platform}")
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _selections(body: Body) -> Iterator[_Selection]:
    for step in body.program.steps:
        key = step.reads[0] if step.name == "sort" else None
        if key is None or str(key.dtype) != GAINS or step.equation.params.get("num_keys", 1) != 1:
            continue
        axis = step.equation.params["dimension"]
        n = key.shape[axis]
        used = used_ends(body, step, axis, n)
        if used is not None and FEW * sum(used) <= n and operations(step) >= LEAST_OPERATIONS:
            yield _Selection(step, elements(key) // n, n, *used)


def used_ends(body: Body, step: TracedEquation, axis: int, n: int) -> tuple[int, int] | None:
    """How many of the smallest and of the largest elements are read; None where others are, or none."""
    ends = [0, 0]
    waiting = [(value, False) for value in step.makes]
    while waiting:
        value, is_reversed = waiting.pop()
        if body.is_output(value):
            return None
        for reader in body.readers(value):
            if reader.name in ("rev", "neg", "convert_element_type"):
                turns = reader.name == "rev" and axis in reader.equation.params["dimensions"]
                waiting.append((reader.makes[0], is_reversed != turns))
                continue
            end = _end_of_slice(reader, axis, n)
            if end is None:
                return None
            is_largest, count = end[0] != is_reversed, end[1]
            ends[is_largest] = max(ends[is_largest], count)
    return (ends[0], ends[1]) if any(ends) else None


def _end_of_slice(step: TracedEquation, axis: int, n: int) -> tuple[bool, int] | None:
    """(is it at the end of the axis?, how many elements from there); None where it is no slice."""
    if step.name != "slice":
        return None
    start, limit = (step.equation.params[name][axis] for name in ("start_indices", "limit_indices"))
    return (True, n - start) if n - start < limit else (False, limit)


def _finding(e: Evidence, found: _Selection) -> Finding:
    ends = {"smallest": found.smallest, "largest": found.largest}
    used = " and ".join(f"the {n} {end}" for end, n in ends.items() if n)
    key = found.step.reads[0]
    tried = _try_selection(e, found, key)
    sort = f"a sort of {key.spec} along its axis {found.step.equation.params['dimension']}{found.step.at}"
    return sort_top_k.finding(
        f"sorts {found.length} elements and uses {used}",
        [sort, tried.sentence],
        "Select them: values, index = jax.lax.top_k(x, k) along the last axis, of -x for the smallest. The largest "
        "comes first; among equal ones the one with the lower index.",
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this sort"),
    )


def _try_selection(e: Evidence, found: _Selection, key: TracedValue) -> Tried:
    k = max(found.smallest, found.largest)
    inputs = (f"{key.dtype}[{found.rows},{found.length}]", k)
    by_sort, by_selection = (make_case(fn, inputs, name=fn.__name__.strip("_"), static=(1,)) for fn in (_sort, _select))
    return try_variant(e, "selected by top_k", by_selection, by_sort)


def _sort(x: jax.Array, k: int) -> jax.Array:
    return jnp.sort(x)[:, ::-1][:, :k]


def _select(x: jax.Array, k: int) -> jax.Array:
    return jax.lax.top_k(x, k)[0]
