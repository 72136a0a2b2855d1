"""Compiles a program around the function in a form whose timed region does the function's own work, and proves it.

A loop around the function is not yet a loop that runs it: XLA's pass `while-loop-invariant-code-motion` computes values
that do not depend on the inputs only once (positional encodings, masks, fixed keys: 14 µs were read for a function of
290 µs). XLA also deletes work that only feeds dropped state. So this module counts the operations in the timed region,
and those of the function's own executable (`program/census.py`). It tries two forms until the counts agree:

    direct   the function is in the body of the loop as it is. No operation can be absent here: with eight exponents
             computed once for all, `pow` took 42 % longer, because they were no longer constants
    branch   the function is the branch of a conditional that is always taken (`clock/stamps.py`). Its cost, 0.07 µs, is
             in the program without the function as well

Turning the pass off by a compiler option is no remedy: it acts on the function's own loops too (a scan with constant
work in its body read 1900 µs instead of 126).

If neither form agrees, the timer has no number, and reports the difference.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax

from benchax.clock.stamps import run_in_branch
from benchax.errors import NotMeasured
from benchax.measuring.timers.base import Subject
from benchax.measuring.timers.embedding import Body, Embedded, Leaves
from benchax.model import Census, Form
from benchax.program import census, hlo
from benchax.program.census import OperationTally, ProgramDifference
from benchax.program.hlo import Computation, Module

Run = Callable[[Body, Leaves, Any], Leaves]
"""(function, its leaves, a number unknown to XLA, u32[]) -> its output arrays, in one repetition."""


def run_direct(body: Body, values: Leaves, word: Any) -> Leaves:
    return body(values)


FORMS: dict[Form, Run] = {"direct": run_direct, "branch": run_in_branch}


@dataclass(frozen=True)
class Proven:
    """A compiled program whose timed region does the work of the function."""

    call: jax.stages.Compiled
    form: Form
    census: Census
    text: str


def compile_proven(
    make: Callable[[Run], Callable[..., Any]],
    find: Callable[[Module], Computation | None],
    numbers: tuple[Any, Any],
    function: Embedded,
    subject: Subject,
) -> Proven:
    """The program in the first form whose timed region agrees with the function by itself.

    Args:
        make: the program around the function, given how to run it. It takes `numbers` and the leaves of the function.
        find: the timed region in the optimised program.

    Raises:
        NotMeasured: no form agrees; says which operations are missing, or added. Or the function returns no arrays.
    """
    body, leaves = function.body, function.leaves
    if not jax.eval_shape(body, leaves):
        raise NotMeasured("it returns no arrays, so that nothing in a compiled program would wait for it")
    # The work of the function's own executable. If that is not accessible, the same function is compiled again.
    text = subject.hlo or jax.jit(lambda *values: body(list(values))).lower(*leaves).compile().as_text() or ""
    alone = _read(text)
    differences: list[ProgramDifference] = []
    for form, run in FORMS.items():
        compiled = jax.jit(make(run)).lower(*numbers, *leaves).compile()
        text = compiled.as_text() or ""
        module = hlo.parse(text)
        region = find(module)
        if region is None:
            raise NotMeasured("its work cannot be found in the optimised program around it")
        timed = census.take_census(module, region)
        difference = census.compare(timed, alone)
        if difference.is_same and not (form == "direct" and difference.absent):
            return Proven(compiled, form, record(timed, alone, form), text)
        differences.append(difference)
    raise NotMeasured(explain(min(differences, key=lambda each: each.missing + each.added)))


def explain(difference: ProgramDifference) -> str:
    """Why a region is not the function, in a sentence."""
    if difference.missing > census.MOST_MISSING:
        return f"inside a loop XLA does only {census.describe_missing(difference)} operations every time"
    return (
        f"inside a loop XLA compiles it into more than it is by itself: {census.describe_added(difference)} operations"
    )


def record(timed: OperationTally, alone: OperationTally, form: Form) -> Census:
    """Makes the entry of the row: the operations that cost something, most expensive first."""
    names = sorted(
        (n for n in {*timed, *alone} if census.price(n)),
        key=lambda name: -census.price(name) * max(timed[name], alone[name]),
    )
    return Census(form, tuple((name, float(timed[name]), float(alone[name])) for name in names))


@lru_cache(maxsize=1)  # `in_graph` and `loop` ask for the same
def _read(text: str) -> OperationTally:
    return census.take_census(hlo.parse(text))
