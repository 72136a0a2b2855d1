"""A loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan.

A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, to
`benchax.experiments.loops` (`experiments/looping.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.core import Tracer

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.base import Prepared

MOST_UNROLLED = 1000
Step = Callable[[Any, Any], Any]
Condition = Callable[[Any], Any]

PLAIN = "a Python loop, operation by operation"


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
class Loop:
    """On the command line: says where to go."""

    name: str = "loop"
    title: str = "a loop in five ways; from Python: benchax.experiments.loops(step, init, n)"
    needs: str = "the body of the loop as a function"

    def prepare(self, case: Case, given: Mapping[str, Any]) -> Prepared:
        raise NotMeasured(
            "a Python loop cannot be rewritten by looking at it: give its body, "
            "benchax.experiments.loops(step, init, n) with step(i, state)"
        )


MEMBERS = (Loop(),)
