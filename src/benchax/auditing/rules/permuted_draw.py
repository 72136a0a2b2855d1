"""Finds permutations of all rows of which a few are used: what a draw of some numbers gives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.rules.sort_top_k import FEW, LEAST_OPERATIONS, used_ends
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.auditing.work import operations
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count

ADVICE = (
    "Draw the rows: jax.random.randint(key, (k,), 0, n), where one may come twice in a batch, as it mostly may in "
    "stochastic gradient descent. For each row once an epoch, permute once before its steps, and take parts of that."
)


@rule("permuted-draw", "are a few random rows drawn without a permutation of all?", "warning", needs_trace_only=True)
def permuted_draw(e: Evidence) -> Iterable[Finding]:
    # What a program does once, as to choose where a search begins, may cost a sort.
    is_done_once = bool(e.why_not_called) and not e.carried.calls
    looked_at = (body for body in bodies(closed_jaxpr(e)) if body.is_loop or not is_done_once)
    found = (one for body in looked_at for one in _permutations(body))
    yield from (_finding(e, one) for one in first_of_each_line(found))


class _Permutation(NamedTuple):
    """A sort by random bits."""

    step: TracedEquation
    rows: int
    used: int
    """Of what it carries along."""


def _permutations(body: Body) -> Iterator[_Permutation]:
    for step in body.program.steps:
        if step.name != "sort" or len(step.reads) < 2 or step.equation.params.get("num_keys", 1) != 1:
            continue
        keys = body.maker(step.reads[0])
        axis = step.equation.params["dimension"]
        n = step.reads[0].shape[axis]
        used = used_ends(body, step, axis, n) if keys is not None and keys.name == "random_bits" else None
        if used is not None and FEW * sum(used) <= n and operations(step) >= LEAST_OPERATIONS:
            yield _Permutation(step, n, sum(used))


def _finding(e: Evidence, found: _Permutation) -> Finding:
    step, n, used = found
    tried = _try_draw(e, n, used)
    return permuted_draw.finding(
        f"permutes {count(n)} rows to use {count(used)} of them",
        [
            f"jax.random.permutation, or choice without replacement, sorts {count(n)} random numbers{step.at}",
            tried.sentence,
        ],
        ADVICE,
        where=where_of(step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this draw"),
    )


def _try_draw(e: Evidence, n: int, used: int) -> Tried:
    by_permutation, by_draw = (
        make_case(fn, (jax.random.PRNGKey(0), n, used), name=fn.__name__.strip("_"), static=(1, 2))
        for fn in (_permute, _draw)
    )
    return try_variant(e, "drawn by randint", by_draw, by_permutation)


def _permute(key: jax.Array, n: int, k: int) -> jax.Array:
    return jax.random.permutation(key, n)[:k]


def _draw(key: jax.Array, n: int, k: int) -> jax.Array:
    return jax.random.randint(key, (k,), 0, n)
