"""NaN among the results: the operation that makes it, found by running the program again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence, is_nan
from benchax.auditing.masked_gradients import SINGULAR, bad_wheres
from benchax.auditing.rule import NotApplicable
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import Match, traced_rule
from benchax.errors import NotMeasured
from benchax.program.evaluate import evaluate, look_up
from benchax.program.index import Body, TracedOp, TracedProgram, Value
from benchax.specs import is_spec


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


# The data of one call, for rules that need more of a function than its program.


def check_real(e: Evidence) -> None:
    """Raises `NotApplicable` where its inputs were made up here of specs, and say nothing about real ones."""
    if any(isinstance(leaf, str) and is_spec(leaf) for leaf in jax.tree.leaves(e.given)):
        raise NotApplicable("its inputs are made up of specs, and real ones are others")


def inputs_of_call(e: Evidence) -> tuple[Any, ...]:
    """Returns the inputs of the jaxpr at one call, with None for inputs that were not kept.

    Raises:
        NotApplicable: as `check_real`.
        NotMeasured: no input was kept.
    """
    check_real(e)
    if len(e.data) != len(e.closed_jaxpr.in_avals):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    return tuple(e.data)


# ---- nan-results -----------------------------------------------------------------------------------------------------

MOST_WORK = 1e10
"""Operations of a call that is run again: some seconds."""
KEEP_WITHIN = {
    "sqrt": "0 or more: jnp.maximum(x, 0.0)",
    "rsqrt": "more than 0: jnp.maximum(x, 1e-6)",
    "log": "more than 0: jnp.maximum(x, 1e-6); of a softmax take jax.nn.log_softmax, of x * log(x) xlogy",
    "log1p": "more than -1: jnp.maximum(x, -1 + 1e-6)",
    "pow": "0 or more if the exponent is no whole number: jnp.maximum(x, 0.0)",
    "acos": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "asin": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "acosh": "1 or more: jnp.maximum(x, 1.0)",
    "atanh": "within -1 and 1: jnp.clip(x, -1 + 1e-6, 1 - 1e-6)",
}
"""The values that an operation needs."""
DIVISOR = "Keep the divisor from 0: jnp.where(n > 0, total / jnp.where(n > 0, n, 1), 0.0), or jnp.maximum(n, 1)."
OVERFLOW = "Keep it from overflowing: subtract the largest before exp, as jax.nn.softmax does, or bound it."
ADVICE = {
    **{name: f"What it is given must be {what}." for name, what in KEEP_WITHIN.items()},
    **dict.fromkeys(("div", "rem"), DIVISOR),
    **dict.fromkeys(("exp", "exp2", "expm1", "cosh", "sinh"), OVERFLOW),
    "cholesky": "The matrix is not positive definite: add a small number to its diagonal, a + 1e-6 * jnp.eye(n), or "
    "compute in float64.",
    "gather": "An index is outside of its axis, and JAX gives NaN there: look at how it is computed.",
    "derivative": "Give the operation of this line a harmless number where its derivative is infinite, before it: "
    "safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0); or keep it away from there: "
    "jnp.sqrt(x + 1e-12). A norm is the root of a sum of squares, and has no derivative at 0.",
    "mask": "inf - inf and 0 * inf are NaN: a row in which everything is masked has nothing left. Mask with a large "
    "finite number, or leave such rows out with jnp.where before and after.",
    "": "Look at what it is given there, and keep it within what the operation has a value for.",
}


@traced_rule("nan-results", "where does NaN come from?", "warning", keeps_backward=True)
def nan_results(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds where NaN comes from in a function whose results are NaN though nothing that it was given is."""
    check_real(e)
    if e.nan_at is None:
        raise NotMeasured("no result of it was looked at, which is done of small ones while calls are counted")
    origin = _find_nan(program, e) if e.nan_at else None
    if origin is None:
        return
    nan, cause = origin.nan, origin.infinity or origin.nan
    line = cause.op.line or nan.op.line
    if line in {bad.line for bad in bad_wheres(program)}:
        return  # where-gradient reports it
    name = nan.op.name if origin.infinity is None else cause.op.name
    what, key = name.replace("_", " "), name if name in ADVICE else "mask" if origin.given else ""
    if nan.op.is_backward:
        # A division is also what derivatives of other operations are made of.
        names = {op.name for op in program.ops if op.name in SINGULAR and op.line == cause.op.line} - {"div"}
        what, key = f"the derivative of {' or '.join(sorted(names)) or 'this line'}", "derivative"
    turns = " of ".join(str(n + 1) for n in reversed(nan.iterations))
    yield Match(
        cause.op,
        f"NaN comes of {what}",
        [
            f"{_describe(nan)}{nan.op.at}{f', in iteration {turns} of its loop' if turns else ''}",
            *([f"inf comes of {_describe(origin.infinity)}{origin.infinity.op.at}"] if origin.infinity else []),
            *([f"inf is put in as a number{origin.given.at}"] if origin.given is not None else []),
            *(
                ["this is computed for a derivative; the value itself can be finite there"]
                if nan.op.is_backward
                else []
            ),
            "computed again from the arguments of one call, none of which is NaN",
        ],
        ADVICE[key],
        at=where_of(line),
    )


def _find_nan(program: TracedProgram, e: Evidence) -> NanOrigin:
    """Runs it again from the arguments of one call.

    Raises:
        NotMeasured: that cannot be done, or shows no NaN.
    """
    given, gave = inputs_of_call(e), f"call {e.nan_at} gave NaN"
    if any(one is None for one in given):
        raise NotMeasured(f"{gave}, and an array that it was called with was too large to be kept")
    if any(map(is_nan, (*given, *(value.const for value in program.consts)))):
        raise NotMeasured(f"{gave}, and so did what it was given at the call that was kept")
    if program.body.work > MOST_WORK or any(body.kind == "while" for body in program.bodies):
        raise NotMeasured(f"{gave}, and it is too long to be run again: where NaN comes from was not looked for")
    origin = find_origin(program, given)
    if origin is None:
        raise NotMeasured(f"{gave}; with the arguments that were kept none arises but of a NaN in the program")
    return origin


def _describe(one: NonFinite) -> str:
    """sqrt of -1.2e-07 gives nan: one element of the result that is not finite, and what it was made of."""
    made = np.asarray(one.made, float)
    bad = np.isnan(made) if np.isnan(made).any() else np.isinf(made)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    share = f" ({int(bad.sum())} of {bad.size} elements are)" if bad.size > 1 else ""
    operands = [_operand(value, made.shape, at) for value in one.reads[:4]]
    return f"{one.op.name.replace('_', ' ')} of {' and '.join(operands)} gives {made[at]:.3g}{share}"


def _operand(value: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):  # a random key
        return "a key"
    if array.shape == shape or not array.shape:
        return f"{array[at if array.shape else ()]:.3g}"
    finite = array[np.isfinite(array)]
    span = f" from {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    return f"{list(array.shape)}{span}{' with inf' if finite.size < array.size else ''}"
