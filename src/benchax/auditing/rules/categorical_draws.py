"""Finds many draws of one categorical distribution that make a random number for each draw and each category."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import elements
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count

MANY, LEAST_NUMBERS = 16, 1 << 20
"""Categories, and draws of each distribution; random numbers of one call."""
GUMBEL = ("neg", "log", "max", "add", "sub", "mul", "bitcast_convert_type", "or", "shift_right_logical", "reshape")
"""What makes Gumbel numbers of random bits in `jax.random.gumbel` (jax 0.6 to 0.12)."""
ADVICE = (
    "Draw by the cumulative sum, with one random number for each draw: jax.random.choice(key, k, (n,), "
    "p=jax.nn.softmax(logits)) does that. Categories of less than 1e-7 of the sum may be lost to rounding."
)


@rule(
    "categorical-draws",
    "are draws of one distribution made with one random number each?",
    "warning",
    needs_trace_only=True,
)
def categorical_draws(e: Evidence) -> Iterable[Finding]:
    # What a program does once, as to make its data, may cost a few random numbers more.
    is_done_once = bool(e.why_not_called) and not e.carried.calls
    looked_at = (body for body in bodies(closed_jaxpr(e)) if body.is_loop or not is_done_once)
    found = (one for body in looked_at for one in _draws(body))
    yield from (_finding(e, one) for one in first_of_each_line(found))


class _Draws(NamedTuple):
    """The largest of log-probabilities with a Gumbel number added to each."""

    step: TracedEquation
    distributions: int
    draws: int
    """Of each distribution."""
    categories: int

    @property
    def numbers(self) -> int:
        return self.distributions * self.draws * self.categories


def _draws(body: Body) -> Iterator[_Draws]:
    for step in body.program.steps:
        added = body.maker(step.reads[0]) if step.name == "argmax" else None
        if added is None or added.name != "add" or elements(added.makes[0]) < LEAST_NUMBERS:
            continue
        logits = [read for read, other in (added.reads, added.reads[::-1]) if _is_gumbel(body, other)]
        if len(logits) == 1:
            one = _of_logits(body, step, added.makes[0], logits[0])
            if min(one.draws, one.categories) >= MANY:
                yield one


def _is_gumbel(body: Body, value: TracedValue) -> bool:
    """Is it -log(-log(u)) of random bits?"""
    logarithms = 0
    while (step := body.maker(value)) is not None and step.name in GUMBEL:
        logarithms += step.name == "log"
        value = next((read for read in step.reads if elements(read) == elements(value)), step.reads[0])
    return step is not None and step.name == "random_bits" and logarithms == 2


def _of_logits(body: Body, step: TracedEquation, added: TracedValue, logits: TracedValue) -> _Draws:
    (axis,) = step.equation.params["axes"]
    varying = body.varying_axes(logits)
    sizes = {i: n for i, n in enumerate(added.shape) if i != axis}
    distributions = math.prod(n for i, n in sizes.items() if i in varying)
    return _Draws(step, distributions, math.prod(sizes.values()) // max(1, distributions), added.shape[axis])


def _finding(e: Evidence, found: _Draws) -> Finding:
    tried = _try_cumulative(e, found)
    enough = count(found.draws * found.distributions)
    return categorical_draws.finding(
        f"{count(found.draws)} draws of {count(found.categories)} categories make a random number for each pair",
        [
            f"jax.random.categorical makes {count(found.numbers)} random numbers{found.step.at}, and {enough} would do",
            tried.sentence,
        ],
        ADVICE,
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "these draws"),
    )


def _try_cumulative(e: Evidence, found: _Draws) -> Tried:
    """Of one of the distributions."""
    logits = jax.numpy.linspace(0.0, 1.0, found.categories)
    by_gumbel, by_sum = (
        make_case(fn, (jax.random.PRNGKey(0), logits, found.draws), name=fn.__name__.strip("_"), static=(2,))
        for fn in (_by_gumbel, _by_sum)
    )
    return try_variant(e, "drawn by the cumulative sum", by_sum, by_gumbel)


def _by_gumbel(key: jax.Array, logits: jax.Array, n: int) -> jax.Array:
    return jax.random.categorical(key, logits, shape=(n,))


def _by_sum(key: jax.Array, logits: jax.Array, n: int) -> jax.Array:
    return jax.random.choice(key, logits.size, (n,), p=jax.nn.softmax(logits))
