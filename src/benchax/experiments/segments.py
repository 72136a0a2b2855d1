"""A function cut into consecutive segments, each under `jax.checkpoint`: only what crosses a cut is kept.

This is the plan of Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost, section 3): sqrt(n) segments of a
chain of n operations. A checkpoint around the whole function recomputes all of it at once, and so keeps as much at its
worst moment. Bodies of loops and inner jits are one operation each here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.errors import NotAvailable
from benchax.experiments.gradients import of_arrays

LEAST_OPERATIONS = 4


@dataclass(frozen=True)
class Segmented:
    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = of_arrays(self.fn, args, kwargs)
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), _run(closed, arrays))


def _run(closed: Any, arguments: Sequence[Any]) -> list[Any]:
    jaxpr = closed.jaxpr
    if len(jaxpr.eqns) < LEAST_OPERATIONS:
        raise NotAvailable(f"too few operations for segments, outside of loops and inner jits: {len(jaxpr.eqns)}")
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *arguments], strict=True))
    length = math.ceil(math.sqrt(len(jaxpr.eqns)))
    for start in range(0, len(jaxpr.eqns), length):
        inside = jaxpr.eqns[start : start + length]
        later = [*(v for eqn in jaxpr.eqns[start + length :] for v in eqn.invars), *jaxpr.outvars]
        taken, made = _crossing(inside, later)
        part = jaxpr.replace(constvars=[], invars=taken, outvars=made, eqns=list(inside))
        results = jax.checkpoint(_evaluate_segment(part))(*(values[v] for v in taken))
        values.update(zip(made, results, strict=True))
    return [v.val if isinstance(v, core.Literal) else values[v] for v in jaxpr.outvars]


def _crossing(inside: Sequence[Any], later: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(what the segment takes, what it makes for later ones)"""
    made = dict.fromkeys(v for eqn in inside for v in eqn.outvars)
    taken = dict.fromkeys(v for eqn in inside for v in eqn.invars if not isinstance(v, core.Literal) and v not in made)
    wanted = {v for v in later if not isinstance(v, core.Literal)}
    return list(taken), [v for v in made if v in wanted]


def _evaluate_segment(part: Any) -> Callable[..., list[Any]]:
    return lambda *values: eval_jaxpr(part, (), *values)
