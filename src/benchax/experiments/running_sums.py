"""Running sums of bf16 and f16 in loops, carried in float32: what `jax.lax.scan` and `while_loop` add up.

A carry is a running sum where the body returns it with something added to it and nothing else: `carry + x`. Only that
sum is wide; whatever else the body computes of the carry, it computes of the rounded one, as before. Without this,
10,000 ones add up to 256 in bf16: from there on 1 is less than half a digit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.program.jaxpr import split_operands

LOW = ("bfloat16", "float16")
ADDITIONS = ("add", "add_any")


@dataclass(frozen=True)
class RunningSum:
    """A carry of a loop to which something is added in each iteration."""

    position: int
    """Among the carries."""
    total: Any
    """The variable of the body that is the new carry."""
    added: Any
    """The added value, a variable or a literal."""


def find_running_sums(equation: Any) -> list[RunningSum]:
    """Finds those of a loop; any other equation has none."""
    body, consts, carries = _body(equation)
    if body is None:
        return []
    makers = {out: eqn for eqn in body.jaxpr.eqns for out in eqn.outvars}
    found: list[RunningSum] = []
    for i in range(carries):
        carry, total = body.jaxpr.invars[consts + i], body.jaxpr.outvars[i]
        made = None if isinstance(total, core.Literal) else makers.get(total)
        if made is None or made.primitive.name not in ADDITIONS or str(getattr(carry.aval, "dtype", "")) not in LOW:
            continue
        others = [v for v in made.invars if v is not carry]
        if len(others) == 1:
            found.append(RunningSum(i, total, others[0]))
    return found


def run_wide(equation: Any, operands: list[Any]) -> list[Any]:
    """The loop on these operands, its running sums in float32; what it returns is rounded once."""
    sums = find_running_sums(equation)
    body, consts, _ = _body(equation)
    is_scan, params = equation.primitive.name == "scan", equation.params
    first = consts if is_scan else params["cond_nconsts"] + consts
    given = list(operands)
    for each in sums:
        given[first + each.position] = given[first + each.position].astype(jnp.float32)
    changed = {"jaxpr": _widen_body(body, consts, sums)} if is_scan else {
        "body_jaxpr": _widen_body(body, consts, sums),
        "cond_jaxpr": _widen_condition(params["cond_jaxpr"], params["cond_nconsts"], sums),
    }  # fmt: skip
    results = list(equation.primitive.bind(*given, **{**params, **changed}))
    for each in sums:
        results[each.position] = results[each.position].astype(each.total.aval.dtype)
    return results


def _body(equation: Any) -> tuple[Any, int, int]:
    """(the body, how many constants it takes first, how many carries then)"""
    body = {"scan": "jaxpr", "while": "body_jaxpr"}.get(equation.primitive.name)
    if body is None:
        return None, 0, 0
    consts, carry, _ = split_operands(equation, equation.invars)
    return equation.params[body], len(consts), len(carry)


def _widen_body(body: Any, consts: int, sums: list[RunningSum]) -> Any:
    jaxpr, at = body.jaxpr, {consts + each.position: each for each in sums}
    totals = {each.total: each for each in sums}
    # What is added is asked for beside what the body returns.
    asking = jaxpr.replace(outvars=[*jaxpr.outvars, *(each.added for each in sums)])

    def run(*values: Any) -> list[Any]:
        rounded = [v.astype(jaxpr.invars[i].aval.dtype) if i in at else v for i, v in enumerate(values)]
        results = eval_jaxpr(asking, body.consts, *rounded)
        returned, added = results[: len(jaxpr.outvars)], results[len(jaxpr.outvars) :]
        wide = {
            each.position: values[consts + each.position] + jnp.asarray(what).astype(jnp.float32)
            for each, what in zip(sums, added, strict=True)
        }
        out: list[Any] = []
        for i, (variable, value) in enumerate(zip(jaxpr.outvars, returned, strict=True)):
            same = None if isinstance(variable, core.Literal) else totals.get(variable)
            if i in wide:
                out.append(wide[i])
            elif same is not None:  # the sum so far, returned in each iteration as well
                out.append(wide[same.position].astype(value.dtype))
            else:
                out.append(value)
        return out

    return _trace(run, jaxpr.invars, set(at))


def _widen_condition(condition: Any, consts: int, sums: list[RunningSum]) -> Any:
    jaxpr, at = condition.jaxpr, {consts + each.position for each in sums}

    def run(*values: Any) -> list[Any]:
        rounded = [v.astype(jaxpr.invars[i].aval.dtype) if i in at else v for i, v in enumerate(values)]
        return eval_jaxpr(jaxpr, condition.consts, *rounded)

    return _trace(run, jaxpr.invars, at)


def _trace(run: Any, variables: Any, wide: set[int]) -> Any:
    avals = [v.aval for v in variables]
    dtypes = [jnp.float32 if i in wide else aval.dtype for i, aval in enumerate(avals)]
    return jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(a.shape, t) for a, t in zip(avals, dtypes, strict=True)))
