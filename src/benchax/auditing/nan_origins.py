"""Finds the operation that makes NaN: it runs a program again, from inputs without NaN.

The search goes back from a NaN result to an operation that had no NaN input. It goes into loops and branches: in a
loop, to the first iteration that makes NaN. If that operation had an infinite input, the search also finds the
operation that made infinity from finite numbers. It ignores a NaN that does not reach the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.program.evaluate import evaluate, look_up
from benchax.program.index import Body, TracedOp, TracedProgram, Value


@dataclass(frozen=True)
class NonFinite:
    """An operation, with what it was given and made at one call."""

    op: TracedOp
    reads: Sequence[np.ndarray]
    made: np.ndarray
    """The first of its results that is not finite."""
    iterations: tuple[int, ...] = ()
    """For each loop around it, outermost first: how many iterations had gone before."""


@dataclass(frozen=True)
class NanOrigin:
    nan: NonFinite
    infinity: NonFinite | None
    """The place where finite numbers made its infinite input. None if it has no infinite input, or if infinity is
    written in the program, or comes with its inputs."""
    given: TracedOp | None = None
    """The operation that puts infinity in as a number."""


def is_nan(value: Any) -> bool:
    """Is one of its elements? False for what is no float."""
    dtype = getattr(value, "dtype", None) or np.result_type(type(value))
    if jax.dtypes.issubdtype(dtype, jax.dtypes.extended) or not jnp.issubdtype(dtype, jnp.inexact):
        return False
    return bool(np.isnan(np.asarray(value)).any())


def find_origin(program: TracedProgram, inputs: Sequence[Any]) -> NanOrigin | None:
    """None if no result is NaN, or one comes from a number that is NaN in the program.

    Raises:
        NotMeasured: it has effects, or calls Python.
    """
    place = _find(program.body, inputs, (), jnp.isnan)
    if place is None:
        return None
    run, op, before = place
    infinite = next((value for value in op.reads if run.has(value, jnp.isinf)), None)
    source = run.first_op(infinite, jnp.isinf) if infinite is not None else None
    if source is None:
        return NanOrigin(run.look_at(op, before), None)
    if _is_of_numbers(source):
        return NanOrigin(run.look_at(op, before), None, source)
    in_run, source, in_before = _inside(source, run, before, jnp.isinf) or (run, source, before)
    return NanOrigin(run.look_at(op, before), in_run.look_at(source, in_before))


Test = Callable[[Any], Any]
"""jnp.isnan or jnp.isinf."""
Place = tuple["_Run", TracedOp, tuple[int, ...]]
"""An operation in a run of its body, and how many iterations of the loops around it went before."""


def _find(body: Body, inputs: Sequence[Any], before: tuple[int, ...], test: Test) -> Place | None:
    """The operation that makes the first result for which the test holds, from others."""
    run = _Run(body, inputs)
    start = next((value for value in body.outputs if run.has(value, test)), None)
    op = run.first_op(start, test) if start is not None else None
    if op is None or _is_of_numbers(op):
        return None
    return _inside(op, run, before, test) or (run, op, before)


def _is_of_numbers(op: TracedOp) -> bool:
    """Does it read a number that is not finite in the program, or replace others by one?"""
    values = op.reads[1:] if op.name == "select_n" else op.reads
    return any(value.literal is not None and not np.all(np.isfinite(value.literal)) for value in values)


class _Run:
    """A body run once, with what is NaN or infinite in it."""

    def __init__(self, body: Body, inputs: Sequence[Any]) -> None:
        self.body, self.inputs = body, [jnp.asarray(one) if np.isscalar(one) else one for one in inputs]
        values = [v for v in (*body.inputs, *(v for op in body.ops for v in op.makes)) if v.is_of(jnp.inexact)]
        flags = self._compute(lambda known: [_flags(known[value]) for value in values])
        self._flags: Mapping[Value, Any] = dict(zip(values, flags, strict=True))

    def _compute(self, read: Callable[[dict[Value, Any]], Any]) -> Any:
        """Returns the result of `read` for all values, and keeps nothing else."""

        def compute(*given: Any) -> Any:
            return read(evaluate(self.body.ops, dict(zip(self.body.inputs, given, strict=True))))

        is_key = lambda one: jax.dtypes.issubdtype(one.dtype, jax.dtypes.extended)  # noqa: E731
        return jax.tree.map(lambda one: one if is_key(one) else np.asarray(one), jax.jit(compute)(*self.inputs))

    def has(self, value: Value, test: Test) -> bool:
        number = value.literal if value.literal is not None else value.const
        if number is not None:
            return value.is_of(jnp.inexact) and bool(np.any(test(np.asarray(number, float))))
        return bool(self._flags[value][int(test is jnp.isinf)]) if value in self._flags else False

    def first_op(self, value: Value, test: Test) -> TracedOp | None:
        """Back from a value to the operation that was given nothing of the kind; None if it is an input."""
        while (op := value.maker) is not None:
            before = next((one for one in op.reads if self.has(one, test)), None)
            if before is None or before.literal is not None:
                return op
            value = before
        return None

    def values_of(self, values: Sequence[Value]) -> list[Any]:
        return self._compute(lambda known: [look_up(known, value) for value in values])

    def look_at(self, op: TracedOp, before: tuple[int, ...]) -> NonFinite:
        n = len(op.reads)
        found = self.values_of([*op.reads, *op.makes])
        floats = (one for one, value in zip(found[n:], op.makes, strict=True) if value.is_of(jnp.inexact))
        return NonFinite(op, found[:n], next((one for one in floats if not np.isfinite(one).all()), found[n]), before)


def _flags(value: Any) -> Any:
    return jnp.stack([jnp.any(jnp.isnan(value)), jnp.any(jnp.isinf(value))])


def _inside(op: TracedOp, run: _Run, before: tuple[int, ...], test: Test) -> Place | None:
    """The operation in a loop or branch; None if it isn't found there."""
    if op.name not in ("cond", "scan", "while"):
        return None
    reads = run.values_of(op.reads)
    if op.name == "cond":
        return _find(op.bodies[int(reads[0])], reads[1:], before, test)
    n, inputs = _first_bad(op, reads, test)
    return _find(op.bodies[0], inputs, (*before, n), test)


def _first_bad(op: TracedOp, reads: Sequence[Any], test: Test) -> tuple[int, list[Any]]:
    """The first iteration with a result for which the test holds: how many went before, and the inputs of the body."""
    (consts, start, xs), length = op.split(reads), op.params.get("length", 0)
    for_condition = reads[: op.params.get("cond_nconsts", 0)]

    def row(i: Any) -> list[Any]:
        at = length - 1 - i if op.params.get("reverse") else i
        return [jax.lax.dynamic_index_in_dim(jnp.asarray(one), at, keepdims=False) for one in xs]

    def goes_on(state: Any) -> Any:
        i, carry, is_bad = state
        more = i < length if op.name == "scan" else _outputs(op.bodies[1], [*for_condition, *carry])[0]
        return ~is_bad & jnp.any(more)

    def iterate(state: Any) -> Any:
        i, carry, _ = state
        made = _outputs(op.bodies[0], [*consts, *carry, *row(i)])
        flags = [jnp.any(test(one)) for one in made if jnp.issubdtype(one.dtype, jnp.inexact)]
        is_bad = jnp.any(jnp.stack(flags)) if flags else jnp.bool_(False)
        carry = tuple(jnp.where(is_bad, old, new) for old, new in zip(carry, made[: len(carry)], strict=True))
        return jnp.where(is_bad, i, i + 1), carry, is_bad

    state = (jnp.int32(0), tuple(jnp.asarray(one) for one in start), jnp.bool_(False))
    n, carry, _ = jax.jit(lambda state: jax.lax.while_loop(goes_on, iterate, state))(state)
    return int(n), [*consts, *carry, *row(n)]


def _outputs(body: Body, inputs: Sequence[Any]) -> list[Any]:
    known = evaluate(body.ops, dict(zip(body.inputs, inputs, strict=True)))
    return [jnp.asarray(look_up(known, value)) for value in body.outputs]
