"""Finds `jnp.where` by one number for all elements, of which one side is dear: both are computed, and one is used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from benchax.auditing.choices import FEWEST, Rarity, WhereChoice, choices, rarity, weighted_bodies
from benchax.auditing.dataflow import GRADIENT
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.auditing.work import count_operations, operations
from benchax.results.audit import Finding
from benchax.units import count, percent

LEAST_SHARE = 0.3
"""Of the operations of a call, those that need not be done."""
LEAST_OPERATIONS = 1 << 18
"""Of the dear side, each time: tens of microseconds, where a `cond` costs a few."""


@dataclass(frozen=True)
class _BothComputed:
    choice: WhereChoice
    dear: tuple[TracedEquation, ...]
    """What is done for the side that is rarely used, or for the cheaper one."""
    rate: Rarity | None
    """None: nothing is known of how often."""
    wasted: float
    """Operations of a call that are done for a side that is not used, at least."""
    total: float

    @property
    def step(self) -> TracedEquation:
        return self.choice.step


@rule("both-sides-computed", "is dear work done only where it is used?", "warning", needs_trace_only=True)
def both_sides_computed(e: Evidence) -> Iterable[Finding]:
    closed = closed_jaxpr(e)
    found: list[_BothComputed] = []
    total = 0.0
    for body, times in weighted_bodies(closed):
        total = total or count_operations(body.program.steps)  # the first is the program
        found += [one for choice in choices(body) for one in _wasted(choice, times, total)]
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _wasted(choice: WhereChoice, times: float, total: float) -> Iterator[_BothComputed]:
    """What is known to be done in vain; nothing where that is little."""
    if GRADIENT in choice.step.scope:
        return
    rate = rarity(choice.body, choice.condition)
    # Of two dear sides one is done in vain, whichever is chosen; of one that is rarely used nearly all.
    sides = {is_true: choice.side(is_true) for is_true in (True, False)}
    which = rate.is_of_true if rate else min(sides, key=lambda is_true: count_operations(sides[is_true]))
    dear, each = sides[which], count_operations(sides[which])
    wasted = times * each * (1 - 1 / (rate.period or FEWEST) if rate else 1)
    if each >= LEAST_OPERATIONS and wasted >= LEAST_SHARE * total and _changes(choice, which):
        yield _BothComputed(choice, dear, rate, wasted, total)


def _changes(choice: WhereChoice, is_true: bool) -> bool:
    """Of what is the same in each iteration XLA may make it once, before the loop."""
    body = choice.body
    sources = set[int]().union(*(body.sources(select.reads[2 if is_true else 1]) for select in choice.selects))
    return not body.is_loop or any(i >= body.constants for i in sources)


def _finding(e: Evidence, found: _BothComputed) -> Finding:
    dear = sorted(found.dear, key=lambda step: -operations(step))
    share = percent(found.wasted / found.total)
    seen = [
        *list_some([f"{step.name} makes {step.makes[0].spec}{step.at}" for step in dear], 3),
        f"{count(count_operations(dear))} operations each time, which nothing else needs: {_describe_use(found)}",
        (
            f"{count(found.wasted)} of {count(found.total)} operations of a call, counted from the shapes, are done in "
            f"vain{'' if _is_known(found) else ', if they are used every second time'}"
        ),
    ]
    return both_sides_computed.finding(
        f"computes both sides of a where each time; {_describe_use(found)}",
        seen,
        "Choose before computing: jax.lax.cond(condition, lambda: dear(x), lambda: other) runs one branch, as long as "
        "the condition is one number, also in a scan. Under jax.vmap keep it out of the batch (in_axes=None).",
        where=where_of(found.step.line) or e.def_where,
        gain=Gain(f"estimated: {share} of the operations of a call") if _is_known(found) else None,
    )


def _is_known(found: _BothComputed) -> bool:
    return found.rate is None or found.rate.period is not None


def _describe_use(found: _BothComputed) -> str:
    if found.rate is None:
        return "the other side is as dear or dearer"
    period = found.rate.period
    return (
        f"the dear one is used once in {period} times" if period else "the dear one is used where two numbers are equal"
    )
