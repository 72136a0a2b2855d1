"""Ties what does not depend on a function's inputs to a reading of the clock, so that it is computed after it.

A stamp holds back what is computed from its operands and nothing else: a positional encoding, the mask of a dropout
with a fixed key or a loop over constants depends on no input, and XLA computes it before the reading or, where
repetitions stand in a loop, once for all of them (its pass while-loop-invariant-code-motion). Here the function is
traced and replayed with one more operand: zero at run time, made of the time, so that XLA cannot know it.

What XLA folds into constants when it compiles the function alone stays as it is, for it is folded here too
(`folding.py`). Where that ends, and only there, the zero is subtracted from one operand: this fuses into what uses it
and changes no value, -0.0 and NaN included (XLA:CPU takes subnormal numbers for 0 in
all arithmetic). An `optimization_barrier` would hold as well, but keeps iota from fusing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from benchax.clock import rewriting, strips, survey
from benchax.clock.folding import NEVER_FOLDED, Kind, Value, is_invariant, kind_of

Arrays = list[Any]
T = TypeVar("T")


@dataclass
class Ties:
    """The zero, and what became of the search."""

    zero: Any
    """u32[]"""
    made: int = 0
    impossible: list[str] = field(default_factory=list)
    """Primitives that depend on no input and have no operand that could be tied."""

    def inside(self, zero: Any, replay: Callable[[], T]) -> T:
        """Replays the body of a loop with the zero that the loop carries, if it carries one."""
        outside, self.zero = self.zero, self.zero if zero is None else zero
        try:
            return replay()
        finally:
            self.zero = outside


def zero_of(time: Any) -> Any:
    """u32[]: 0 until the clock has run for 292 years, which XLA does not know."""
    return time[1] >> jnp.uint32(31)


def tie_program(program: Any) -> tuple[Any, tuple[str, ...]]:
    """(closed jaxpr of the zero and the program's inputs, the primitives that could not be tied, one for each place).

    The jaxpr is None where nothing was tied: the program is as good as it is.
    """
    if survey.is_spread(program):
        # Each device would need a zero of its own.
        return None, untied(program)
    ties = Ties(None)

    def replayed(zero: Any, *inputs: Any) -> Arrays:
        ties.zero, ties.made, ties.impossible = zero, 0, []
        values = [Value(value, Kind.computed) for value in inputs]
        return [value.array for value in run(program, values, ties)]

    shapes = [jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type) for aval in program.in_avals]
    tied = jax.make_jaxpr(replayed)(jax.ShapeDtypeStruct((), jnp.uint32), *shapes)
    return tied if ties.made else None, tuple(sorted(ties.impossible))


def untied(program: Any) -> tuple[str, ...]:
    """The primitives that start from nothing, in a program that is left as it is."""
    return tuple(e.primitive.name for e in survey.equations(program) if e.primitive.name == "iota")


def run(program: Any, arguments: Sequence[Value], ties: Ties) -> list[Value]:
    """The outputs of a program, replayed with ties where they are needed."""
    jaxpr, consts = survey.opened(program)
    known = dict(zip(jaxpr.constvars, (Value(const, Kind.constant) for const in consts), strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))
    for eqn in jaxpr.eqns:
        operands = [_value(atom, known) for atom in eqn.invars]
        known.update(zip(eqn.outvars, _equation(jaxpr, eqn, operands, ties), strict=True))
    return [_value(atom, known) for atom in jaxpr.outvars]


def _value(atom: Any, known: dict[Any, Value]) -> Value:
    if isinstance(atom, core.Literal):
        return Value(rewriting.literal(atom), Kind.constant)
    return known[atom]


def _equation(jaxpr: Any, eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    name = eqn.primitive.name
    if name in RULES and survey.has_arrays_only(eqn):
        return RULES[name](eqn, operands, ties)
    programs = survey.inner(eqn)
    if len(programs) == 1 and name not in RULES:  # a call: inlined, as XLA inlines it
        return run(programs[0], operands, ties)
    kind = kind_of(eqn, operands)
    if kind is Kind.computed and is_invariant(operands):
        # A literal stands in the equation itself, and cannot be replaced.
        variables = [i for i, atom in enumerate(eqn.invars) if not isinstance(atom, core.Literal)]
        operands = _tie(name, operands, sorted(variables, key=lambda i: -operands[i].kind), ties)
    elif _holds_sources(eqn):
        ties.impossible.append(name)
    pairs = zip(eqn.invars, operands, strict=True)
    arrays = {atom: value.array for atom, value in pairs if not isinstance(atom, core.Literal)}
    results = rewriting.bind_as_it_was(jaxpr, eqn, arrays)
    return [Value(result, kind) for result in results]


def _holds_sources(eqn: Any) -> bool:
    """Whether a primitive that is left as it is runs a program that begins with nothing."""
    jaxprs = [leaf for leaf in jax.tree.leaves(list(eqn.params.values())) if hasattr(leaf, "eqns")]
    return any(untied(program) for program in jaxprs)


def _tie(name: str, operands: list[Value], order: Sequence[int], ties: Ties) -> list[Value]:
    """The first operand in `order` that can be made to depend on the zero, made so."""
    for i in order:
        array = operands[i].array
        if (tied := _minus_zero(array, ties.zero)) is not None:
            ties.made += 1
            # One variable may stand in an equation twice.
            return [Value(tied, Kind.computed) if value.array is array else value for value in operands]
    ties.impossible.append(name)
    return operands


def _minus_zero(value: Any, zero: Any) -> Any:
    """The value, as XLA cannot know; None where there is no arithmetic for its type."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or dtype == jax.dtypes.float0:
        return None
    if jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        data = _minus_zero(jax.random.key_data(value), zero)
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(value))
    if dtype == jnp.bool_:
        return lax.bitwise_xor(jnp.asarray(value), jnp.broadcast_to(zero != 0, jnp.shape(value)))
    if not jnp.issubdtype(dtype, jnp.number):
        return None
    return lax.sub(jnp.asarray(value), jnp.broadcast_to(lax.convert_element_type(zero, dtype), jnp.shape(value)))


def _all_computed(arrays: Sequence[Any]) -> list[Value]:
    return [Value(array, Kind.computed) for array in arrays]


def _arrays(values: Sequence[Value]) -> Arrays:
    return [value.array for value in values]


def _replay(program: Any, kinds: Sequence[Kind], ties: Ties) -> Callable[..., Arrays]:
    """The program as a function of arrays whose kinds are known."""

    def function(*arrays: Any) -> Arrays:
        values = [Value(array, kind) for array, kind in zip(arrays, kinds, strict=True)]
        return _arrays(run(program, values, ties))

    return function


def _cond(eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    index, *rest = operands
    before = ties.made
    branches = [_replay(program, [value.kind for value in rest], ties) for program in survey.inner(eqn)]
    results = lax.switch(index.array.astype(jnp.int32), branches, *_arrays(rest))
    is_folded = ties.made == before and is_invariant(operands)
    return [Value(result, Kind.constant if is_folded else Kind.computed) for result in results]


def _while(eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    condition, body = survey.inner(eqn)
    first = of_condition + of_body
    if is_invariant(operands):
        counters = _read_by(survey.opened(condition)[0], of_condition)
        order = sorted(range(first, len(operands)), key=lambda i: (i - first in counters, not _has_shape(operands[i])))
        operands = _tie("while", operands, order, ties)
    conditions, bodies, carry = operands[:of_condition], operands[of_condition:first], operands[first:]
    kinds = _kinds_of_carry(survey.opened(body)[0], of_body, carry)
    goes_on = _replay(condition, [*(v.kind for v in conditions), *kinds], ties)
    step = _replay(body, [*(v.kind for v in bodies), *kinds], ties)
    has_lanes = survey.opened(condition)[0].outvars[0].aval.shape != ()
    zero = _zero_inside([condition, body], operands[:first], kinds, ties)

    def is_unfinished(state: tuple[Any, Arrays]) -> Any:
        return ties.inside(state[0], lambda: goes_on(*_arrays(conditions), *state[1])[0])

    def advance(state: tuple[Any, Arrays]) -> tuple[Any, Arrays]:
        zero, old = state
        new = ties.inside(zero, lambda: step(*_arrays(bodies), *old))
        return _renew(zero), strips.keep_finished_lanes(is_unfinished(state), new, old) if has_lanes else new

    _, results = lax.while_loop(lambda s: jnp.any(is_unfinished(s)), advance, (zero, _arrays(carry)))
    return _all_computed(results)


def _zero_inside(programs: Sequence[Any], given: Sequence[Value], carried: Sequence[Kind], ties: Ties) -> Any:
    """What a loop carries as its zero: None where it can use the one outside.

    XLA moves nothing out of a loop that hands no array on unchanged. A zero that is handed on unchanged would let it,
    and a function would be faster tied than alone: so there it changes, as far as XLA knows.
    """
    is_needed = any(e.primitive.name in {"iota", *NEVER_FOLDED} for p in programs for e in survey.equations(p))
    moves = (Kind.counter, Kind.computed)
    has_unchanged = any(value.kind in moves for value in given) or any(kind is Kind.counter for kind in carried)
    return ties.zero if is_needed and not has_unchanged else None


def _renew(zero: Any) -> Any:
    return None if zero is None else zero + zero


def _kinds_of_carry(jaxpr: Any, consts: int, carry: Sequence[Value]) -> list[Kind]:
    """What a body hands on as it was given stays what it is."""
    pairs = zip(jaxpr.invars[consts:], jaxpr.outvars, carry, strict=False)
    return [value.kind if new is old else Kind.computed for old, new, value in pairs]


def _read_by(jaxpr: Any, consts: int) -> set[int]:
    """The carried values that a condition looks at: XLA reads trip counts off their first values."""
    read = {id(atom) for eqn in jaxpr.eqns for atom in eqn.invars} | {id(atom) for atom in jaxpr.outvars}
    return {i for i, variable in enumerate(jaxpr.invars[consts:]) if id(variable) in read}


def _has_shape(value: Value) -> bool:
    return getattr(value.array, "shape", ()) != ()


def _scan(eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    of_consts, of_carry = rewriting.constants_and_carried(eqn)
    first = of_consts + of_carry
    if is_invariant(operands):
        order = [*range(of_consts, len(operands)), *range(of_consts)]
        operands = _tie("scan", operands, order, ties)
    consts, carry, xs = operands[:of_consts], operands[of_consts:first], operands[first:]
    (program,) = survey.inner(eqn)
    kinds = [*(v.kind for v in consts), *_kinds_of_carry(survey.opened(program)[0], of_consts, carry)]
    step = _replay(program, [*kinds, *(Kind.computed for _ in xs)], ties)

    def iteration(state: tuple[Any, Arrays], x: Arrays) -> tuple[tuple[Any, Arrays], Arrays]:
        zero, carry = state
        outputs = ties.inside(zero, lambda: step(*_arrays(consts), *carry, *x))
        return (_renew(zero), outputs[:of_carry]), outputs[of_carry:]

    length, reverse, unroll = (eqn.params[name] for name in ("length", "reverse", "unroll"))
    state = _zero_inside([program], [*consts, *xs], kinds, ties), _arrays(carry)
    (_, carry), ys = lax.scan(iteration, state, _arrays(xs), length, reverse=reverse, unroll=unroll)
    return _all_computed([*carry, *ys])


def _remat(eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    (program,) = survey.inner(eqn)
    if rewriting.has_barrier(eqn):
        if is_invariant(operands):
            operands = _tie("remat", operands, range(len(operands)), ties)
        operands = _all_computed(lax.optimization_barrier(_arrays(operands)))
    return run(program, operands, ties)


def _linear_solve(eqn: Any, operands: list[Value], ties: Ties) -> list[Value]:
    (solve,) = survey.inner(eqn)
    return run(solve, rewriting.operands_of_solve(eqn, operands), ties)


RULES: dict[str, Callable[[Any, list[Value], Ties], list[Value]]] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "remat": _remat,
    "remat2": _remat,
    "checkpoint": _remat,
}
"""For other primitives: `_equation`."""
