"""Puts the measured function inside another compiled program whose timed region does the function's own work.

`loop` and `in_graph` share this code. The function becomes one of its array leaves, if possible. A program around it
shows its cost only if it does the function's work in every repetition. If that is not possible, these functions give
the reason.

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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.clock.stamps import run_in_branch
from benchax.errors import NotMeasured
from benchax.measuring.state import is_carried
from benchax.measuring.timers.base import Subject, refuse
from benchax.model import Census, Form
from benchax.program import census, hlo
from benchax.static_leaves import data_of, is_key, like

Leaves = list[Any]
Body = Callable[[Leaves], Any]
"""A function of its array leaves; where a program is built around it, one that returns a list of arrays."""


@dataclass(frozen=True)
class Embedded:
    """A function that another program can repeat."""

    body: Body
    leaves: Leaves
    fed: dict[int, int]
    """Which leaf becomes which output in the next repetition, as the function donates it."""
    most_calls: int
    """Repetitions in a row that keep every number finite."""


def feed(fed: Mapping[int, int], values: Leaves, outputs: Leaves) -> Leaves:
    """The values of the next repetition: outputs where `fed` names one."""
    return [like(value, outputs[fed[i]]) if i in fed else value for i, value in enumerate(values)]


def embed(subject: Subject, most_calls: int) -> Embedded:
    """The function of its array leaves, ready to be repeated inside another program.

    Args:
        most_calls: repetitions in a row, at most.

    Raises:
        NotMeasured: it would not be the same function there, or not run every time.
    """
    refuse(
        (
            subject.donates and not subject.feedback,
            "it donates arguments that its outputs cannot replace, so that a repetition has none",
        ),
        (
            not subject.dynamic_leaves,
            "it takes no arrays: nothing ties one repetition to the next, and XLA would run it once",
        ),
        (
            hlo.entry_uses_parameters(subject.hlo) is False,
            "its compiled program does not depend on its inputs, so that it would be computed once for all",
        ),
    )
    body, leaves = function_of_leaves(subject)
    # A loop does not carry weak types, so such numbers are not fed back.
    fed = {i: j for i, j in subject.fed_leaves.items() if not getattr(leaves[i], "weak_type", False)}
    most = min(most_calls, subject.feedback.most_calls) if subject.feedback else most_calls
    return Embedded(lambda values: arrays_of(body(values)), leaves, fed, most)


def function_of_leaves(subject: Subject) -> tuple[Body, Leaves]:
    """Returns (the function of its array leaves alone, those leaves); it closes over static arguments and other
    objects.

    Values that a call changes in place are outputs as well (`state.CallOutcome`). Otherwise XLA would remove the work
    that only leads to them.

    Raises:
        NotMeasured: it cannot be traced.
    """
    if subject.impure:
        raise NotMeasured(f"two traces of it differ: {subject.impure}")
    inner: Any = subject.program.inner
    if inner is None:
        kind = "without jit" if subject.program.kind == "eager" else "as a Compiled"
        raise NotMeasured(f"a function that is given {kind} cannot be called inside another compiled program")
    return subject.body(inner), subject.dynamic_leaves


def arrays_of(outputs: Any) -> Leaves:
    """Returns the leaves of a function's outputs as arrays of plain numbers, so that a loop can carry them.

    Python's numbers (weak types) become arrays, since loops distinguish the two. Typed keys become the numbers that
    they consist of. Other leaves, such as a function inside a module of equinox, are left out.
    """
    carried = [leaf for leaf in jax.tree.leaves(outputs) if is_carried(leaf)]
    leaves = [jnp.asarray(data_of(leaf)) for leaf in carried]
    return [lax.convert_element_type(leaf, leaf.dtype) for leaf in leaves]


def zeros_like_outputs(body: Body, leaves: Leaves) -> Leaves:
    """Returns the values that a loop around `body` carries instead of its outputs before the first repetition.

    They are NumPy arrays: `jnp.zeros` compiles a program for each new shape, 10 ms.
    """
    return [jax.device_put(np.zeros(s.shape, s.dtype)) for s in jax.eval_shape(body, leaves)]


def number_like(leaf: Any) -> Any:
    """An argument of the same kind, as small as can be."""
    if not isinstance(leaf, jax.Array):
        return leaf
    if is_key(leaf):
        return jax.random.key(0, impl=jax.random.key_impl(leaf))
    return jax.device_put(np.float32(0), leaf.sharding)


# ---- proof -----------------------------------------------------------------------------------------------------------


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
    find: Callable[[hlo.Module], hlo.Computation | None],
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
    # Counts the work of the function's own executable. If that is not accessible, the same function is compiled again.
    text = subject.hlo or jax.jit(lambda *values: body(list(values))).lower(*leaves).compile().as_text() or ""
    alone = _read(text)
    differences: list[census.ProgramDifference] = []
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


def explain(difference: census.ProgramDifference) -> str:
    """Why a region is not the function, in a sentence."""
    if difference.missing > census.MOST_MISSING:
        return f"inside a loop XLA does only {census.describe_missing(difference)} operations every time"
    return (
        f"inside a loop XLA compiles it into more than it is by itself: {census.describe_added(difference)} operations"
    )


def record(timed: census.OperationTally, alone: census.OperationTally, form: Form) -> Census:
    """Makes the entry of the row: the operations that cost something, most expensive first."""
    names = sorted(
        (n for n in {*timed, *alone} if census.price(n)),
        key=lambda name: -census.price(name) * max(timed[name], alone[name]),
    )
    return Census(form, tuple((name, float(timed[name]), float(alone[name])) for name in names))


@lru_cache(maxsize=1)  # `in_graph` and `loop` ask for the same
def _read(text: str) -> census.OperationTally:
    return census.take_census(hlo.parse(text))
