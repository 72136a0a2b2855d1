"""Runs a traced function with loops that look at the clock: an interpreter of jaxprs, to be traced in its turn.

Only loops that may take long, and what holds them, are interpreted; everything else is bound as it was. Calls (`jit`,
custom derivatives, `remat`) are inlined, as XLA inlines them. Scans are unrolled as JAX unrolls them: XLA contracts
a multiplication and an addition that stand in one iteration, so that other iterations would be other numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.clock import estimates, strips, survey
from benchax.clock.scans import Scan
from benchax.clock.strips import Arrays, Guard, LoopFacts

Rule = Callable[[Any, Arrays, Any, Guard], tuple[Arrays, Any]]
"""(equation, its operands, flag, guard) to (its results, flag)."""


def run(program: Any, arguments: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    """(outputs of the program, whether the time was up at the last look)."""
    jaxpr, consts = survey.open_program(program)
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
    dtype: Any = getattr(atom.aval, "dtype", None)
    return atom.val if dtype in (None, jax.dtypes.float0) else jnp.asarray(atom.val, dtype)


def _as_it_was(jaxpr: Any, eqn: Any, values: dict[Any, Any]) -> Arrays:
    """Lets JAX bind one equation, for every version knows how."""
    operands = list(dict.fromkeys(v for v in eqn.invars if not isinstance(v, core.Literal)))
    alone = jaxpr.replace(constvars=[], invars=operands, outvars=list(eqn.outvars), eqns=[eqn])
    return eval_jaxpr(alone, (), *(values[v] for v in operands))


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
    def branch(program: Any) -> Callable[[Any, Arrays], tuple[Arrays, Any]]:
        return lambda flag, operands: run(program, operands, flag, guard)

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
        return run(body_program, [*body_consts, *carry], flag, guard)

    carry = operands[of_condition + of_body :]
    has_lanes = survey.open_program(condition_program)[0].outvars[0].aval.shape != ()
    work = strips.while_loop_of_loops if survey.has_checked(condition_program) else strips.while_loop
    return work(condition, body, carry, flag, _loop(eqn, guard, has_lanes=has_lanes))


def _loop(eqn: Any, guard: Guard, unroll: int = 1, has_lanes: bool = False) -> LoopFacts:
    step_ns = unroll * sum(estimates.program_ns(program, survey.inner) for program in survey.inner(eqn))
    return LoopFacts(guard, step_ns, any(map(survey.has_checked, survey.inner(eqn))), has_lanes)


def _constants_and_carried(eqn: Any) -> tuple[int, int]:
    """How many of the operands of a scan are constants, and how many are carried; the others are rows."""
    if "ft_in" not in eqn.params:  # before jax 0.11
        return eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry, _ = eqn.params["ft_in"].unpack()
    return len(consts), len(carry)


def _scan(eqn: Any, operands: Arrays, flag: Any, guard: Guard) -> tuple[Arrays, Any]:
    of_consts, of_carry = _constants_and_carried(eqn)
    consts, carry = operands[:of_consts], operands[of_consts : of_consts + of_carry]
    (program,) = survey.inner(eqn)

    def step(carry: Arrays, x: Arrays, flag: Any) -> tuple[Arrays, Arrays, Any]:
        outputs, flag = run(program, [*consts, *carry, *x], flag, guard)
        return outputs[:of_carry], outputs[of_carry:], flag

    rows = [v.aval for v in survey.open_program(program)[0].outvars[of_carry:]]
    length, reverse, unroll = (eqn.params[name] for name in ("length", "reverse", "unroll"))
    scan = Scan(step, rows, length, reverse, unroll, _loop(eqn, guard, unroll))
    carry, ys, flag = scan.run(carry, operands[of_consts + of_carry :], flag)
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
"""For other primitives: `_call`."""
