"""What a scan computes of its inputs alone, taken out of it and computed for all iterations at once.

An equation of the body that depends on no carry can run before the loop: once, where it depends on constants alone, and
for all iterations as one batch, where it depends on what is scanned over. The products `x_t @ W` of a recurrent network
are then one large product. The loop scans over the results in place of what they were made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.program.jaxpr import split_operands

WORTHWHILE = ("dot_general", "conv_general_dilated")
"""Where none of these is taken out, XLA does as well by itself, and the batch costs memory."""
KEPT = ("random_bits", "random_split", "debug_callback", "debug_print", "io_callback", "pure_callback")
"""Effects stay where they are; and so do random numbers, which other shapes would change."""


@dataclass(frozen=True)
class SplitScan:
    """The body of a scan, in two."""

    before: Any
    """A jaxpr of (constants, what is scanned over) that gives `passed`."""
    loop: Any
    """A jaxpr of (constants, carries, what is scanned over, `passed`) that gives what the body gives."""
    taken: int
    """Products that are no longer in the loop."""


def hoist(equation: Any, operands: list[Any], evaluate: Callable[[Any], list[Any]]) -> list[Any]:
    """A change for `rewriting.Rewritten`."""
    parts = split(equation) if equation.primitive.name == "scan" else None
    if parts is None:
        return evaluate(equation)
    params = equation.params
    consts, carry, xs = split_operands(equation, operands)
    n_carry = len(carry)
    body_consts = params["jaxpr"].consts
    passed = jax.vmap(lambda *x: eval_jaxpr(parts.before, body_consts, *consts, *x))(*xs)

    def step(state: list[Any], x: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        results = eval_jaxpr(parts.loop, body_consts, *consts, *state, *x[0], *x[1])
        return results[:n_carry], results[n_carry:]

    carry, ys = jax.lax.scan(
        step, carry, (xs, passed), length=params["length"], reverse=params["reverse"], unroll=params.get("unroll", 1)
    )
    return [*carry, *ys]


def split(equation: Any) -> SplitScan | None:
    """None where nothing worthwhile can be taken out."""
    body = equation.params["jaxpr"].jaxpr
    consts, carries, xs = split_operands(equation, body.invars)
    if not xs:
        return None
    bound = set(carries)
    early: list[Any] = []
    late: list[Any] = []
    for eqn in body.eqns:
        needs_carry = any(v in bound for v in _variables(eqn.invars))
        if needs_carry or eqn.primitive.name in KEPT or eqn.effects:
            late.append(eqn)
            bound.update(eqn.outvars)
        else:
            early.append(eqn)
    taken = sum(eqn.primitive.name in WORTHWHILE for eqn in early)
    if not taken:
        return None
    made = {v for eqn in early for v in eqn.outvars}
    wanted = [*(v for eqn in late for v in _variables(eqn.invars)), *_variables(body.outvars)]
    passed = list(dict.fromkeys(v for v in wanted if v in made))
    before = body.replace(invars=[*consts, *xs], outvars=passed, eqns=early)
    loop = body.replace(invars=[*body.invars, *passed], eqns=late)
    return SplitScan(before, loop, taken)


def _variables(atoms: Any) -> list[Any]:
    return [v for v in atoms if not isinstance(v, core.Literal)]
