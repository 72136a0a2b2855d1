"""Sums of low precision accumulated in float32: matrix products and convolutions by `preferred_element_type`.

The function is traced and run again operation by operation: products of bf16 or f16 are asked for in float32 and
rounded once, and sums are made of float32. Bodies of loops and branches stay as they are, which the row says. Whether
it changes anything is measured: some backends accumulate so anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax.extend import core

from benchax.case import Case
from benchax.errors import NotAvailable
from benchax.experiments.base import ChangedCase, Facts, Observation
from benchax.experiments.functions import plain
from benchax.experiments.rewriting import Evaluate, Rewritten, inner_program
from benchax.measuring.prepare import prepare
from benchax.model import Comparison
from benchax.units import number

LOW = ("bfloat16", "float16")
PRODUCTS = ("dot_general", "conv_general_dilated")
SUMS = ("reduce_sum", "cumsum")


@dataclass(frozen=True)
class Accumulated:
    name: str = "accumulate-f32"
    title: str = "products and sums of bf16 and f16 accumulated in float32"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        unjitted = plain(case, seed)
        traced = prepare(replace(unjitted, jit=True), seed).trace().reach_trace()
        reached, others = _count_widened(traced.jaxpr.jaxpr)
        if not reached:
            where = f"; {others} stand in loops and branches, which are left as they are" if others else ""
            raise NotAvailable(f"it has no product and no sum of bf16 or f16{where}")
        return ChangedCase(
            replace(unjitted, fn=Rewritten(unjitted.fn, _widen)),
            facts=lambda before, now, c: _facts(reached, others, before, now, c),
        )


def _widen(eqn: Any, operands: list[Any], evaluate: Evaluate) -> list[Any]:
    return _widen_operands(eqn, operands) if _is_low(eqn) else evaluate(eqn)


def _is_low(eqn: Any) -> bool:
    name, out = eqn.primitive.name, eqn.outvars[0].aval if eqn.outvars else None
    return name in (*PRODUCTS, *SUMS) and str(getattr(out, "dtype", "")) in LOW


def _widen_operands(eqn: Any, operands: list[Any]) -> list[Any]:
    dtype = eqn.outvars[0].aval.dtype
    if eqn.primitive.name in SUMS:
        return [eqn.primitive.bind(operands[0].astype(jnp.float32), **eqn.params).astype(dtype)]
    params = {**eqn.params, "preferred_element_type": jnp.dtype(jnp.float32)}
    return [eqn.primitive.bind(*operands, **params).astype(dtype)]


def _count_widened(jaxpr: Any, is_reached: bool = True) -> tuple[int, int]:
    """(operations of low precision that are reached, those in loops and branches)"""
    reached = others = 0
    for eqn in jaxpr.eqns:
        inner = [(inside, is_reached and inner_program(eqn) is not None) for inside in _inside(eqn)]
        own = int(_is_low(eqn))
        reached, others = reached + own * is_reached, others + own * (not is_reached)
        for one, two in (_count_widened(inside, still) for inside, still in inner):
            reached, others = reached + one, others + two
    return reached, others


def _inside(eqn: Any) -> list[Any]:
    held = [each for value in eqn.params.values() for each in (value if isinstance(value, tuple | list) else [value])]
    return [getattr(each, "jaxpr", each) for each in held if isinstance(each, core.ClosedJaxpr | core.Jaxpr)]


def _facts(reached: int, others: int, before: Observation, now: Observation, c: Comparison | None) -> Facts:
    left = f"; {others} more in loops and branches are as they were" if others else ""
    facts = [("changed", f"{reached} products and sums{left}")]
    if before.errors and now.errors and None not in (before.errors.median_rel, now.errors.median_rel):
        one, other = (number(e.median_rel or 0.0, 2) for e in (before.errors, now.errors))
        facts.append(("median error", f"{one} before, {other} now"))
    return tuple(facts)


MEMBERS = (Accumulated(),)
