"""Runs a loop that waits for a tolerance, from the inputs of one call, with the residual noted in each iteration.

Whether a tolerance can be reached depends on the data, and cannot be read from a program. Only what the loop needs is
computed of its program, and nothing that has effects.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.auditing.tolerance_loops import PASSES, ToleranceLoop
from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue
from benchax.errors import NotMeasured

MEASURES = (
    *PASSES, "abs", "div", "dot_general", "integer_pow", "max", "mul", "neg", "reduce_max", "reduce_sum", "select_n",
    "sqrt", "square", "add", "transpose",
)  # fmt: skip
"""What norms of differences are made of."""
FALLS = 0.9
"""A residual has fallen where it is below so much of what it was when it last fell: rounding alone makes new lowest
values by chance, and they are hardly lower."""
CHUNK = 64
"""Iterations between looks at the clock, at first."""


@dataclass(frozen=True)
class LoopRun:
    """What came of running a loop."""

    iterations: int
    has_ended: bool
    """Not stopped because it took too long."""
    elapsed_s: float
    residual: np.ndarray
    """Of the last iteration, as `tolerance`, one for each row of a batch."""
    tolerance: np.ndarray
    lowest: np.ndarray
    highest: np.ndarray
    """The highest finite one."""
    fell_at: np.ndarray
    """The last iteration in which it fell."""
    scale: float
    """The largest finite number that the loop carries, without its sign."""
    smallest: float | None
    """What the residual is at the end if all but one element of the differences behind it were 0, and that one were the
    smallest that numbers of their size can have; None where it is not made of differences, or there is a batch."""


def run_loop(program: TracedProgram, loop: ToleranceLoop, inputs: Sequence[Any], limit_s: float) -> LoopRun:
    """Runs it as often as its condition says, for at most `limit_s` and one look at the clock.

    Args:
        inputs: of the program, as `tolerance_loops` gave it.
    """
    given = jax.jit(lambda *values: _operands(program, loop.step, values))(*inputs)
    around = _Iteration(loop, given)
    advance, state = jax.jit(around.advance), around.start
    jax.block_until_ready(advance(state, 0))  # compiled before the clock runs
    begun, chunk, is_going = perf_counter(), CHUNK, True
    while is_going and perf_counter() - begun < limit_s:
        before = perf_counter()
        state = jax.block_until_ready(advance(state, chunk))
        is_going = bool(np.any(state.is_going))
        chunk = 2 * chunk if perf_counter() - before < limit_s / 20 else chunk
    elapsed_s = perf_counter() - begun
    notes = (np.asarray(value, np.float64) for value in (state.residual, state.tolerance, state.lowest, state.highest))
    fell_at = np.asarray(state.fell_at)
    return LoopRun(
        int(state.n), not is_going, elapsed_s, *notes, fell_at=fell_at, scale=_scale(state.carry),
        smallest=around.smallest(state.carry),
    )  # fmt: skip


def _operands(program: TracedProgram, step: TracedEquation, inputs: Sequence[Any]) -> list[Any]:
    before = program.steps[: next(i for i, one in enumerate(program.steps) if one is step)]
    known = evaluate(TracedProgram(program.inputs, before, ()), inputs)
    return [look_up(known, value) for value in step.reads]


def evaluate(program: TracedProgram, inputs: Sequence[Any], given: Mapping[int, Any] | None = None) -> dict[int, Any]:
    """What each value is, by its id, those aside that are `given`. Of use under jit, which leaves out what is not
    needed."""
    given = given or {}
    known = {id(value): one for value, one in zip(program.inputs, inputs, strict=True)}
    for step in program.steps:
        if step.equation.effects or "callback" in step.name:
            raise NotMeasured("it has effects besides its results, or calls back into Python")
        made = bind(step.equation, [look_up(known, value) for value in step.reads])
        known.update({id(value): given.get(id(value), one) for value, one in zip(step.makes, made, strict=True)})
    return known


def bind(equation: Any, read: Sequence[Any]) -> Sequence[Any]:
    """Lets JAX do one equation, for every version knows how."""
    given = {v: one for v, one in zip(equation.invars, read, strict=True) if not isinstance(v, core.Literal)}
    alone = _empty().replace(invars=list(given), outvars=list(equation.outvars), eqns=[equation])
    return eval_jaxpr(alone, (), *given.values())


@functools.cache
def _empty() -> Any:
    """A jaxpr, to make others of, for a version of JAX knows what else they have."""
    return jax.make_jaxpr(lambda: None)().jaxpr


def look_up(known: Mapping[int, Any], value: TracedValue) -> Any:
    if value.literal is not None:
        return jnp.asarray(value.literal, value.dtype)
    if id(value) not in known:
        raise NotMeasured("a constant of it is not known")
    return known[id(value)]


class _LoopState(NamedTuple):
    carry: tuple[Any, ...]
    n: Any
    is_going: Any
    residual: Any
    tolerance: Any
    lowest: Any
    highest: Any
    marked: Any
    """What it was when it last fell."""
    fell_at: Any


class _Iteration:
    """One iteration of a loop, with what it has from outside."""

    def __init__(self, loop: ToleranceLoop, operands: Sequence[Any]) -> None:
        params = loop.step.equation.params
        n_cond, n_all = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
        self.loop = loop
        self.for_cond, self.for_body, self.carry = operands[:n_cond], operands[n_cond:n_all], tuple(operands[n_all:])

    @property
    def start(self) -> _LoopState:
        residual, tolerance = self.loop.residual, self.loop.tolerance
        unknown = jnp.full(residual.shape, jnp.inf, residual.dtype)
        known = evaluate(self.loop.cond, (*self.for_cond, *self.carry))
        return _LoopState(
            self.carry, jnp.int32(0), jnp.asarray(look_up(known, self.loop.cond.outputs[0])),
            unknown, jnp.zeros(tolerance.shape, tolerance.dtype), unknown, -unknown, unknown,
            jnp.zeros(residual.shape, jnp.int32),
        )  # fmt: skip

    def advance(self, state: _LoopState, n: int) -> _LoopState:
        until = state.n + n
        return jax.lax.while_loop(lambda s: jnp.any(s.is_going) & (s.n < until), self._iterate, state)

    def values(self, carry: Sequence[Any], given: Mapping[int, Any] | None = None) -> dict[int, Any]:
        """Those of the body, and of the condition after it."""
        known = evaluate(self.loop.body, (*self.for_body, *carry), given)
        after = [look_up(known, value) for value in self.loop.body.outputs]
        return known | evaluate(self.loop.cond, (*self.for_cond, *after), given)

    def _iterate(self, state: _LoopState) -> _LoopState:
        known = self.values(state.carry)
        made = (look_up(known, value) for value in self.loop.body.outputs)
        carry = tuple(_choose(state.is_going, new, old) for new, old in zip(made, state.carry, strict=True))
        residual, tolerance = (jnp.asarray(look_up(known, v)) for v in (self.loop.residual, self.loop.tolerance))
        return _note(state, carry, look_up(known, self.loop.cond.outputs[0]), residual, tolerance)

    def smallest(self, carry: Sequence[Any]) -> float | None:
        """As `LoopRun` has it."""
        steps = list(_differences(self.loop))
        if not steps or self.loop.residual.shape:
            return None
        sides = [value for step in steps for value in step.reads]
        read = jax.jit(lambda carry: [look_up(known, v) for known in [self.values(carry)] for v in sides])(carry)
        residual = jax.jit(lambda carry, given: look_up(self.values(carry, given), self.loop.residual))
        least = [_least_difference(first, second) for first, second in zip(read[::2], read[1::2], strict=True)]
        nothing = {id(step.makes[0]): jnp.zeros_like(one) for step, one in zip(steps, least, strict=True)}
        if residual(carry, nothing) != 0:  # it has other parts, which differences may balance
            return None
        found = (residual(carry, nothing | {id(s.makes[0]): one}) for s, one in zip(steps, least, strict=True))
        return max(float(one) for one in found)


def _differences(loop: ToleranceLoop) -> Iterator[TracedEquation]:
    """The subtractions of floats whose results the residual measures, in the condition or in the body."""
    makers = {id(value): step for part in (loop.body, loop.cond) for step in part.steps for value in step.makes}
    n = loop.step.equation.params["cond_nconsts"]
    carried = {id(value): i for i, value in enumerate(loop.cond.inputs[n:])}
    seen, waiting = set[int](), [loop.residual]
    while waiting:
        value = waiting.pop()
        value = loop.body.outputs[carried[id(value)]] if id(value) in carried else value
        step = makers.get(id(value))
        if step is None or id(value) in seen:
            continue
        seen.add(id(value))
        if step.name == "sub":
            yield step
        elif step.name in MEASURES:
            waiting += step.reads


def _least_difference(first: Any, second: Any) -> Any:
    """0 but for one element: where numbers are farthest apart, what two of them differ by at least if they differ."""
    sizes = np.minimum(*np.broadcast_arrays(np.abs(np.asarray(first)), np.abs(np.asarray(second))))
    # Just below a power of two the next number is half as far away.
    steps = np.where(np.isfinite(sizes), np.spacing(np.where(np.isfinite(sizes), sizes, 0)) / 2, 0)
    found = np.zeros_like(sizes)
    found[np.unravel_index(np.argmax(steps), sizes.shape)] = np.max(steps)
    return jnp.asarray(found)


def _choose(is_going: Any, new: Any, old: Any) -> Any:
    """In a batch, rows that have ended stay as they are."""
    if not is_going.shape:
        return new
    return jnp.where(is_going.reshape(is_going.shape + (1,) * (new.ndim - is_going.ndim)), new, old)


def _note(state: _LoopState, carry: tuple[Any, ...], is_going: Any, residual: Any, tolerance: Any) -> _LoopState:
    falls = residual < FALLS * state.marked
    return _LoopState(
        carry,
        state.n + 1,
        is_going,
        residual,
        tolerance,
        jnp.where(residual < state.lowest, residual, state.lowest),
        jnp.where(jnp.isfinite(residual) & (residual > state.highest), residual, state.highest),
        jnp.where(falls, residual, state.marked).astype(residual.dtype),
        jnp.where(falls, state.n + 1, state.fell_at),
    )


def _scale(carry: Sequence[Any]) -> float:
    floats = [np.abs(np.asarray(one, np.float64)) for one in carry if jnp.issubdtype(one.dtype, jnp.floating)]
    return max((float(np.max(one, where=np.isfinite(one), initial=0.0)) for one in floats), default=0.0)
