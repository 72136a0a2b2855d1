"""A loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan.

A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, here or to
`benchax.experiments.loops` (`experiments/looping.py`).

    loop=50                     turns
    loop=model.py:unfinished    as long as unfinished(state) is true
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.core import Tracer

from benchax.case import Case, name_of
from benchax.discovery import literal
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments import asked
from benchax.experiments.base import Prepared
from benchax.experiments.beside import STANDS_FOR_ITSELF, Means, Timed, means
from benchax.experiments.functions import plain
from benchax.experiments.timing import timed
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Absent
from benchax.results.experiment import VariantRow

MOST_UNROLLED = 1000
Step = Callable[[Any, Any], Any]
Condition = Callable[[Any], Any]

PLAIN = "a Python loop, operation by operation"
TURNS = "a number of turns from 1 up, or a condition of the state"
TOLD = f"{TURNS}: loop=50, loop=model.py:unfinished"


@dataclass(frozen=True, eq=False)
class InPython:
    """The loop as it stands. While it is traced (for the run in float64) one of XLA, which takes no time to unroll."""

    step: Step
    n: int | Condition
    is_body_jitted: bool = False
    is_unrolled: bool = False

    def __call__(self, state: Any) -> Any:
        is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state))
        if is_traced and not self.is_unrolled:
            return InXla(self.step, self.n)(state)
        i = 0
        while self.n(state) if callable(self.n) else i < self.n:
            state = self._turn(i, state)
            i += 1
        return state

    @cached_property
    def _turn(self) -> Step:
        return jax.jit(self.step) if self.is_body_jitted else self.step

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_turn"}


@dataclass(frozen=True, eq=False)
class InXla:
    """`fori_loop`, or `while_loop` for a condition."""

    step: Step
    n: int | Condition

    def __call__(self, state: Any) -> Any:
        if not callable(self.n):
            return jax.lax.fori_loop(0, self.n, self.step, state)
        n = self.n
        counted = jax.lax.while_loop(lambda s: n(s[1]), lambda s: (s[0] + 1, self.step(s[0], s[1])), (0, state))
        return counted[1]


@dataclass(frozen=True, eq=False)
class InScan:
    step: Step
    n: int

    def __call__(self, state: Any) -> Any:
        return jax.lax.scan(lambda s, i: (self.step(i, s), None), state, jax.numpy.arange(self.n))[0]


@dataclass(frozen=True)
class Way:
    """Of the loops, under a name."""

    name: str
    title: str

    def of(self, case: Case, step: Step, n: int | Condition) -> Prepared:
        """Raises `NotAvailable` where there is none for this loop."""
        whole = replace(case, jit=True, id=replace(case.id, variant=""))
        if self.name == "inner-jit":
            return Prepared(replace(case, fn=InPython(step, n, is_body_jitted=True)))
        if self.name == "lax-loop":
            return Prepared(replace(whole, fn=InXla(step, n)))
        if callable(n):
            raise NotAvailable("the number of turns is not known while tracing")
        if self.name == "scan":
            return Prepared(replace(whole, fn=InScan(step, n)))
        if n > MOST_UNROLLED:
            raise NotAvailable(f"more than {MOST_UNROLLED} turns are not unrolled here; it has {n}")
        return Prepared(replace(whole, fn=InPython(step, n, is_unrolled=True)))


WAYS = (
    Way("inner-jit", "the Python loop with a jitted body"),
    Way("lax-loop", "jitted as a whole: jax.lax.fori_loop or while_loop"),
    Way("unrolled", "jitted as a whole: Python unrolls it while tracing"),
    Way("scan", "jitted as a whole: jax.lax.scan"),
)


@dataclass(frozen=True)
class StateOf:
    """An input factory: the state among the inputs of a turn. Numbers become arrays, as in a loop of XLA."""

    turn: Case
    seed: int

    def __call__(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        return (jax.tree.map(jax.numpy.asarray, make_inputs(self.turn, self.seed).args[1]),), {}


@dataclass(frozen=True)
class Loop:
    """The function is one turn, step(i, state)."""

    name: str = "loop"
    title: str = "the function as one turn, step(i, state), of a loop in five ways (loop=50)"
    needs: str = ""
    timed: Timed = timed

    def prepare(self, case: Case, given: Mapping[str, Any]) -> Prepared:
        if self.name not in given:
            raise NotMeasured(
                "it has to be told how many turns, loop=50, or a condition of the state, loop=model.py:unfinished; "
                "the function is one turn, step(i, state)"
            )
        n, seed = self._turns(case, given[self.name]), given.get("seed", 0)
        _check_turn(case, make_inputs(case, seed))
        turn = plain(case, seed)  # a jitted one would be no loop "operation by operation"
        whole = replace(
            turn, fn=InPython(turn.fn, n), inputs=StateOf(case, seed), static=(), donate=(), jit=False,
            id=replace(case.id, variant=""),
        )  # fmt: skip
        return Prepared(
            case, measure=lambda tell: _rows(whole, turn.fn, n, means(given, tell, self.timed)), combines=False
        )

    def _turns(self, case: Case, raw: Any) -> int | Condition:
        said = f"{self.name}={raw!r}"
        if not isinstance(raw, str):
            return checked_turns(said, raw, TOLD)
        if ":" not in raw:
            return checked_turns(said, literal(raw.strip()), TOLD)
        (named,) = asked.named_objects(self.name, [raw], case)
        return checked_turns(f"{said} names an object of the type {type(named).__name__}", named, TOLD)


def checked_turns(said: str, n: Any, expected: str) -> int | Condition:
    """Raises `UsageError`, which begins with `said`, for what is neither a number of turns nor a condition."""
    if callable(n) or (type(n) is int and n > 0):
        return n
    raise UsageError(said, expected)


def _check_turn(case: Case, inputs: Inputs) -> None:
    """Raises `UsageError` unless the inputs are those of step(i, state)."""
    if len(inputs.args) != 2 or inputs.kwargs or not _is_index(inputs.args[0]):
        raise UsageError(
            f"loop cannot take {case.id.label}({inputs.signature}) for a turn",
            "two inputs by position, as of step(i, state): the number of the turn, and the state",
            "benchax try model.py:step 0 f32[1000] --variants loop --set loop=50",
        )


def _is_index(i: Any) -> bool:
    if isinstance(i, jax.Array):
        return not i.shape and jax.numpy.issubdtype(i.dtype, jax.numpy.integer)
    return type(i) is int


def _rows(whole: Case, step: Step, n: int | Condition, how: Means) -> tuple[VariantRow, ...]:
    # Here, because run.py imports the variants.
    from benchax.experiments.looping import run  # noqa: PLC0415
    from benchax.experiments.run import Request  # noqa: PLC0415

    found = run(whole, step, n, Request(how.options, effort=how.effort, tell=how.tell, timed=how.timed))
    rows = [replace(row, name=f"loop:{row.name}") for row in found.rows]
    plain = replace(found.baseline, name="loop:python")
    if plain.status != "ok":
        return (plain, *rows)
    turns = f"while {name_of(n)}(state)" if callable(n) else f"{n} {'turn' if n == 1 else 'turns'}"
    absent = (*plain.absent, Absent("comparison", STANDS_FOR_ITSELF))
    said = f"{PLAIN}; {turns}, i from 0 on"
    return (replace(plain, reason=STANDS_FOR_ITSELF, sentence=said, absent=absent), *rows)


MEMBERS = (Loop(),)
