"""Finds the operation of which NaN comes: a program is run once more, from inputs without NaN.

From a result that is NaN the way goes back to an operation that was given none, into loops and branches: of a loop the
first iteration that makes NaN is looked for. Where infinity was given, so is the operation that made that of finite
numbers. A NaN that was made and left out again is not on that way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.tolerance_runs import evaluate, look_up
from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, flow


@dataclass(frozen=True)
class NonFiniteStep:
    """An operation, with what it was given and made at one call."""

    step: TracedEquation
    reads: Sequence[np.ndarray]
    made: np.ndarray
    """The first of its results that is not finite."""
    iterations: tuple[int, ...] = ()
    """Of the loops around it, outermost first: how many had gone before."""


@dataclass(frozen=True)
class NanOrigin:
    nan: NonFiniteStep
    infinity: NonFiniteStep | None
    """Where the infinity that it was given was made of finite numbers; None where it was given none, or that stands in
    the program, or comes with its inputs."""
    given: TracedEquation | None = None
    """What puts infinity in as a number."""


def is_nan(value: Any) -> bool:
    """Is one of its elements? False of what is no float."""
    dtype = getattr(value, "dtype", None) or np.result_type(type(value))
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) or not jnp.issubdtype(dtype, jnp.inexact):
        return False
    return bool(np.isnan(np.asarray(value)).any())


def find_origin(closed: Any, inputs: Sequence[Any]) -> NanOrigin | None:
    """None where no result is NaN, or one comes of a number that is NaN in the program.

    Raises:
        NotMeasured: it has effects, or calls back into Python.
    """
    place = _find(closed, inputs, (), jnp.isnan)
    if place is None:
        return None
    run, step, before = place
    infinite = next((value for value in step.reads if run.has(value, jnp.isinf)), None)
    source = run.first_step(infinite, jnp.isinf) if infinite is not None else None
    if source is None:
        return NanOrigin(run.look_at(step, before), None)
    if _is_of_numbers(source):
        return NanOrigin(run.look_at(step, before), None, source)
    in_run, source, in_before = _inside(source, run, before, jnp.isinf) or (run, source, before)
    return NanOrigin(run.look_at(step, before), in_run.look_at(source, in_before))


Test = Callable[[Any], Any]
"""jnp.isnan or jnp.isinf."""
Place = tuple["_ProgramRun", TracedEquation, tuple[int, ...]]
"""A step in a run of its program, and how many iterations of the loops around it went before."""


def _find(closed: Any, inputs: Sequence[Any], before: tuple[int, ...], test: Test) -> Place | None:
    """The step that makes the first result for which the test holds, of others."""
    run = _ProgramRun(flow(constants_as_inputs(closed)), [*closed.consts, *inputs])
    start = next((value for value in run.program.outputs if run.has(value, test)), None)
    step = run.first_step(start, test) if start is not None else None
    if step is None or _is_of_numbers(step):
        return None
    return _inside(step, run, before, test) or (run, step, before)


def _is_of_numbers(step: TracedEquation) -> bool:
    """Is it made of what stands in the program, or does it put such a number in place of others?"""
    values = step.reads[1:] if step.name == "select_n" else step.reads
    return any(value.literal is not None and not np.all(np.isfinite(value.literal)) for value in values)


class _ProgramRun:
    """A program run once, with what is NaN or infinite in it."""

    def __init__(self, program: TracedProgram, inputs: Sequence[Any]) -> None:
        self.program, self.inputs = program, [jnp.asarray(one) if np.isscalar(one) else one for one in inputs]
        self._makers = {id(value): step for step in program.steps for value in step.makes}
        values = [value for value in (*program.inputs, *self._made()) if value.is_of(jnp.inexact)]
        flags = self.compute(lambda known: [_flags(known[id(value)]) for value in values if id(value) in known])
        self._flags: Mapping[int, Any] = {id(value): one for value, one in zip(values, flags, strict=True)}

    def _made(self) -> list[TracedValue]:
        return [value for step in self.program.steps for value in step.makes]

    def compute(self, read: Callable[[dict[int, Any]], Any]) -> Any:
        """What `read` makes of all values, of which nothing else is kept."""
        found = jax.jit(lambda *given: read(evaluate(self.program, given)))(*self.inputs)
        return jax.tree.map(lambda one: np.asarray(one) if _is_plain(one) else one, found)

    def has(self, value: TracedValue, test: Test) -> bool:
        if value.literal is not None:
            return value.is_of(jnp.inexact) and bool(np.any(test(np.asarray(value.literal, float))))
        return bool(self._flags[id(value)][int(test is jnp.isinf)]) if id(value) in self._flags else False

    def first_step(self, value: TracedValue, test: Test) -> TracedEquation | None:
        """Back from a value to the step that was given nothing of the kind; None where it is an input."""
        while (step := self._makers.get(id(value))) is not None:
            before = next((one for one in step.reads if self.has(one, test)), None)
            if before is None or before.literal is not None:
                return step
            value = before
        return None

    def values_of(self, values: Sequence[TracedValue]) -> list[Any]:
        return self.compute(lambda known: [look_up(known, value) for value in values])

    def look_at(self, step: TracedEquation, before: tuple[int, ...]) -> NonFiniteStep:
        n = len(step.reads)
        found = self.values_of([*step.reads, *step.makes])
        made = next((one for one, value in zip(found[n:], step.makes, strict=True) if _is_bad(one, value)), found[n])
        return NonFiniteStep(step, found[:n], made, before)


def _flags(value: Any) -> Any:
    return jnp.stack([jnp.any(jnp.isnan(value)), jnp.any(jnp.isinf(value))])


def _is_bad(one: Any, value: TracedValue) -> bool:
    return value.is_of(jnp.inexact) and not bool(jnp.all(jnp.isfinite(one)))


def _is_plain(value: Any) -> bool:
    return not jax.dtypes.issubdtype(value.dtype, jax.dtypes.extended)


# ---- inside of loops and branches -------------------------------------------------------------------------------


def _inside(step: TracedEquation, run: _ProgramRun, before: tuple[int, ...], test: Test) -> Place | None:
    """The step in a loop or branch; None where it is none, or that is not found there."""
    params = step.equation.params
    if step.name == "cond":
        reads = run.values_of(step.reads)
        return _find(params["branches"][int(reads[0])], reads[1:], before, test)
    if step.name == "scan":
        n, inputs = _first_bad_of_scan(step, run.values_of(step.reads), test)
        return _find(params["jaxpr"], inputs, (*before, n), test)
    if step.name == "while":
        n, inputs = _first_bad_of_while(step, run.values_of(step.reads), test)
        return _find(params["body_jaxpr"], inputs, (*before, n), test)
    return None


def _body_of(closed: Any) -> Callable[..., list[Any]]:
    program = flow(constants_as_inputs(closed))

    def compute(*given: Any) -> list[Any]:
        known = evaluate(program, (*closed.consts, *given))
        return [jnp.asarray(look_up(known, value)) for value in program.outputs]

    return compute


def _has_any(values: Sequence[Any], test: Test) -> Any:
    found = [jnp.any(test(one)) for one in values if jnp.issubdtype(one.dtype, jnp.inexact)]
    return jnp.any(jnp.stack(found)) if found else jnp.bool_(False)


def _first_bad_of_scan(step: TracedEquation, reads: Sequence[Any], test: Test) -> tuple[int, list[Any]]:
    """The first iteration with such a result: how many went before, and the inputs of the body."""
    params, length = step.equation.params, step.equation.params["length"]
    consts, start, xs = step.split_operands(reads)
    body = _body_of(params["jaxpr"])

    def row(i: Any) -> list[Any]:
        at = length - 1 - i if params["reverse"] else i
        return [jax.lax.dynamic_index_in_dim(jnp.asarray(one), at, keepdims=False) for one in xs]

    def compute(i: Any, carry: Sequence[Any]) -> list[Any]:
        return body(*consts, *carry, *row(i))

    n, carry = _run_until(test, compute, start, lambda i, carry: i < length)
    return n, [*consts, *carry, *row(jnp.int32(n))]


def _first_bad_of_while(step: TracedEquation, reads: Sequence[Any], test: Test) -> tuple[int, list[Any]]:
    params = step.equation.params
    for_cond, (for_body, start, _) = reads[: params["cond_nconsts"]], step.split_operands(reads)
    goes_on, body = _body_of(params["cond_jaxpr"]), _body_of(params["body_jaxpr"])
    n, carry = _run_until(
        test, lambda i, carry: body(*for_body, *carry), start, lambda i, carry: goes_on(*for_cond, *carry)[0]
    )
    return n, [*for_body, *carry]


def _run_until(
    test: Test,
    compute: Callable[[Any, Sequence[Any]], list[Any]],
    start: Sequence[Any],
    goes_on: Callable[[Any, Sequence[Any]], Any],
) -> tuple[int, list[Any]]:
    """Iterates; (iterations before the one with a result for which the test holds, what it was given)."""
    n_carry = len(start)

    def iterate(state: Any) -> Any:
        i, carry, _ = state
        made = compute(i, carry)
        is_bad = _has_any(made, test)
        carry = tuple(jnp.where(is_bad, old, new) for old, new in zip(carry, made[:n_carry], strict=True))
        return jnp.where(is_bad, i, i + 1), carry, is_bad

    state = (jnp.int32(0), tuple(jnp.asarray(one) for one in start), jnp.bool_(False))
    run = jax.jit(lambda state: jax.lax.while_loop(lambda s: ~s[2] & jnp.any(goes_on(s[0], s[1])), iterate, state))
    i, carry, _ = run(state)
    return int(i), list(carry)
