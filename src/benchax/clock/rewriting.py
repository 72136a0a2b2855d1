"""Runs a traced function with loops that look at the clock: an interpreter of jaxprs, to be traced in its turn.

Only loops that may take long, and what holds them, are interpreted; everything else is bound as it was. Calls (`jit`,
custom derivatives, `remat`) are inlined, as XLA does. Which primitives hold a program, `survey.py` knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core

from benchax.clock import strips, survey
from benchax.clock.strips import Arrays, Guard

Rule = Callable[[Any, Arrays, Any, Guard], tuple[Arrays, Any]]
"""(equation, its operands, flag, guard) to (its results, flag)."""


def run(jaxpr: Any, arguments: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    """(outputs of the program, whether the time was up at the last look)."""
    jaxpr, consts = survey.open_jaxpr(jaxpr)
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))
    for eqn in jaxpr.eqns:
        if survey.is_checked(eqn):
            operands = [_value(v, values) for v in eqn.invars]
            results, flag = RULES.get(eqn.primitive.name, _call)(eqn, operands, flag, guard)
        else:
            results = _as_it_was(jaxpr, eqn, values)
        values.update(zip(eqn.outvars, results, strict=True))
    return [_value(v, values) for v in jaxpr.outvars], flag


def _value(atom: Any, values: dict[Any, Any]) -> Any:
    if not isinstance(atom, core.Literal):
        return values[atom]
    return atom.val if atom.aval.dtype == jax.dtypes.float0 else jnp.asarray(atom.val, atom.aval.dtype)


def _as_it_was(jaxpr: Any, eqn: Any, values: dict[Any, Any]) -> Arrays:
    """Lets JAX bind one equation, for it knows how in every version."""
    operands = list(dict.fromkeys(v for v in eqn.invars if not isinstance(v, core.Literal)))
    alone = jaxpr.replace(constvars=[], invars=operands, outvars=list(eqn.outvars), eqns=[eqn])
    return jax.core.eval_jaxpr(alone, (), *(values[v] for v in operands))


def _strong(values: Arrays) -> Arrays:
    """Without weak types, which a loop must carry unchanged; they say nothing to what is bound already."""
    return [
        v if jax.dtypes.issubdtype(v.dtype, jax.dtypes.extended) else lax.convert_element_type(v, v.dtype)
        for v in values
    ]


def _call(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    (program,) = survey.inner(eqn)
    return run(program, operands, flag, guard)


def _remat(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    prevent = eqn.params.get("prevent_cse")
    if eqn.params.get("differentiated") and (any(prevent) if isinstance(prevent, tuple) else prevent):
        operands = lax.optimization_barrier(operands)
    return _call(eqn, operands, flag, guard)


def _linear_solve(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    matvec, vecmat, solve, transposed = (length or 0 for length in eqn.params["const_lengths"])
    first = matvec + vecmat
    consts, b = operands[first : first + solve], operands[first + solve + transposed :]
    return _call(eqn, [*consts, *b], flag, guard)


def _cond(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    def branch(program: Any) -> Any:
        def work(flag: Any, operands: Arrays) -> tuple[Arrays, Any]:
            outputs, flag = run(program, operands, flag, guard)
            return _strong(outputs), flag

        return work

    index, *operands = operands
    return lax.switch(index.astype(jnp.int32), [branch(p) for p in survey.inner(eqn)], flag, operands)


def _while(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    of_condition, of_body = eqn.params["cond_nconsts"], eqn.params["body_nconsts"]
    condition_consts, body_consts = operands[:of_condition], operands[of_condition : of_condition + of_body]
    condition_program, body_program = survey.inner(eqn)

    def condition(carry: Arrays, flag: Any) -> tuple[Any, Any]:
        (goes_on,), flag = run(condition_program, [*condition_consts, *carry], flag, guard)
        return goes_on, flag

    def body(carry: Arrays, flag: Any) -> tuple[Arrays, Any]:
        carry, flag = run(body_program, [*body_consts, *carry], flag, guard)
        return _strong(carry), flag

    carry = _strong(operands[of_condition + of_body :])
    has_lanes = survey.open_jaxpr(condition_program)[0].outvars[0].aval.shape != ()
    is_plain = not has_lanes and not survey.has_checked(condition_program)
    loop = strips.while_loop if is_plain else strips.while_loop_over_lanes
    return loop(condition, body, carry, flag, guard)


def _scan(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    of_consts, of_carry = eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry = operands[:of_consts], _strong(operands[of_consts : of_consts + of_carry])
    xs = operands[of_consts + of_carry :]
    (program,) = survey.inner(eqn)

    def step(carry: Arrays, x: Arrays, flag: Any) -> tuple[Arrays, Arrays, Any]:
        outputs, flag = run(program, [*consts, *carry, *x], flag, guard)
        outputs = _strong(outputs)
        return outputs[:of_carry], outputs[of_carry:], flag

    rows = [v.aval for v in survey.open_jaxpr(program)[0].outvars[of_carry:]]
    length, reverse = eqn.params["length"], eqn.params["reverse"]
    carry, ys, flag = strips.scan(step, carry, xs, rows, flag, guard, length=length, reverse=reverse)
    return [*carry, *ys], flag


RULES: dict[str, Rule] = {
    "while": _while,
    "scan": _scan,
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "remat": _remat,
    "remat2": _remat,
    "checkpoint": _remat,
}
