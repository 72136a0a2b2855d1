"""Choices between two results that were both computed, by one number for all their elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.traced import TracedEquation, TracedValue
from benchax.program.jaxpr import call_by_user, frames_of

AS_IT_IS = ("convert_element_type", "copy", "reshape", "squeeze", "stop_gradient", "broadcast_in_dim")
SELECTS = ("where", "select", "select_n")
FEWEST = 2
"""What is needed in one iteration of some, without more being known, is needed in every second at most."""


def only_for(body: Body, selects: Sequence[TracedEquation], side: int) -> Iterator[TracedEquation]:
    """Steps whose results reach nothing but this side of the choices. What a backward pass reads of them is for this
    side too: where the other one was chosen, its gradient is zero."""
    allowed = {id(select.reads[side]) for select in selects}
    others = {id(value) for value in body.program.outputs}
    others |= {id(value) for select in selects for i, value in enumerate(select.reads) if i != side}
    for step in reversed(body.program.steps):
        made = {id(value) for value in step.makes}
        is_only = bool(made & allowed) and not made & others and all(select is not step for select in selects)
        if is_only:
            yield step
            allowed |= {id(value) for value in step.reads}
        elif GRADIENT not in step.scope and all(select is not step for select in selects):
            others |= {id(value) for value in step.reads}


@dataclass(frozen=True)
class WhereChoice:
    """What is chosen by one condition: somebody wrote `jnp.where` or `jax.lax.select`."""

    body: Body
    condition: TracedValue
    """A number."""
    selects: tuple[TracedEquation, ...]

    @property
    def step(self) -> TracedEquation:
        return self.selects[0]

    def side(self, is_true: bool) -> tuple[TracedEquation, ...]:
        """What is computed for nothing but this side; of a backward pass, what reads of that."""
        steps = tuple(only_for(self.body, self.selects, 2 if is_true else 1))
        made = {id(value) for step in steps for value in step.makes}
        backward = (step for step in self.body.program.steps if GRADIENT in step.scope)
        return (*steps, *(step for step in backward if any(id(value) in made for value in step.reads)))


def choices(body: Body) -> Iterator[WhereChoice]:
    """Those of the body that the user's own line asks for; what functions of JAX and packages choose is theirs."""
    groups: dict[int, tuple[TracedValue, list[TracedEquation]]] = {}
    for step in body.program.steps:
        condition = _number_behind(body, step.reads[0]) if step.name == "select_n" and len(step.reads) == 3 else None
        if condition is not None and _is_written(step):
            groups.setdefault(id(condition), (condition, []))[1].append(step)
    yield from (WhereChoice(body, condition, tuple(selects)) for condition, selects in groups.values())


def _number_behind(body: Body, value: TracedValue) -> TracedValue | None:
    while value.shape and (step := body.maker(value)) is not None and step.name in AS_IT_IS:
        value = step.reads[0]
    return None if value.shape or value.literal is not None else value


def _is_written(step: TracedEquation) -> bool:
    """Is it of a call of `where` or `select` in the user's own file? JAX keeps the trace of the jit inside of `where`
    from another call: then its equation tells."""
    caller = step.calls[-1] if step.calls and step.calls[-1].params.get("name") == "_where" else step.equation
    names = {frame.function_name.rpartition(".")[2] for frame in frames_of(caller)}
    called = call_by_user(caller)
    return called in SELECTS or (called in ("map", "tree_map") and not names.isdisjoint(SELECTS))


class Rarity(NamedTuple):
    """How often a condition holds."""

    is_of_true: bool
    """Is it rare that it holds? Else that it does not."""
    period: int | None
    """Once in so many; None where that is not known."""


def rarity(body: Body, condition: TracedValue) -> Rarity | None:
    """Which outcome is rare, as far as the program tells: it compares the remainder of a whole number, or what changes
    in a loop with what does not. None where nothing is known."""
    step = body.maker(condition)
    if step is None:
        return None
    if step.name in AS_IT_IS:
        return rarity(body, step.reads[0])
    parts = [rarity(body, read) for read in step.reads] if step.name in ("not", "and", "or") else []
    if step.name == "not" and parts[0] is not None:
        return Rarity(not parts[0].is_of_true, parts[0].period)
    known = [part for part in parts if part is not None]
    if step.name == "and" and any(part.is_of_true for part in known):
        return max((part for part in known if part.is_of_true), key=lambda part: part.period or 0)
    if step.name == "or" and len(known) == 2 and all(part.is_of_true for part in known):
        return Rarity(True, None)
    return _of_comparison(body, step) if step.name in ("eq", "ne") else None


def _of_comparison(body: Body, step: TracedEquation) -> Rarity | None:
    read = [value for value in step.reads if str(value.dtype).lstrip("u").startswith("int")]
    if len(read) != 2:
        return None
    is_true = step.name == "eq"
    for value in read:
        for maker in _scalar_makers(body, value):
            if maker.name == "rem":
                period = _literal_behind(body, maker.reads[1])
                return Rarity(is_true, period) if period is None or abs(period) >= FEWEST else None
    return Rarity(is_true, body.trips) if body.is_loop and sum(_varies(body, value) for value in read) == 1 else None


def _scalar_makers(body: Body, value: TracedValue, depth: int = 4) -> Iterator[TracedEquation]:
    """What a number is made of, a few steps back: `%` is a remainder whose sign is mended."""
    step = body.maker(value)
    if step is not None and depth and all(not read.shape for read in step.reads):
        yield step
        for read in step.reads:
            yield from _scalar_makers(body, read, depth - 1)


def _literal_behind(body: Body, value: TracedValue) -> int | None:
    """The divisor that somebody wrote; `%` takes 1 in place of 0."""
    numbers = [value.literal] if value.literal is not None else []
    for maker in _scalar_makers(body, value):
        numbers += [read.literal for read in maker.reads if read.literal is not None]
        if any(read.literal is None and body.maker(read) is None for read in maker.reads):
            return None
    return max((abs(int(number)) for number in numbers), default=None)


def _varies(body: Body, value: TracedValue) -> bool:
    """May it differ from iteration to iteration?"""
    return any(i >= body.constants for i in body.sources(value))


class WeightedBody(NamedTuple):
    """A body, and how often it runs in a call."""

    body: Body
    times: float


def weighted_bodies(closed: Any) -> Iterator[WeightedBody]:
    """The program and the bodies in it; one of a loop of unknown length counts once, as `work.operations` has it."""
    times: dict[int, float] = {}
    for body in bodies(closed):
        around = 1.0 if body.of is None else times.get(id(body.of), 1.0)
        each = around * (body.trips or 1)
        times.update({id(step): each for step in body.program.steps})
        yield WeightedBody(body, each)
