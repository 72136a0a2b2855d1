"""A function with some of its operations changed: it is traced, and run again equation by equation.

Inner jits are inlined, as XLA does. Bodies of loops and branches stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.experiments.functions import as_function_of_arrays

Evaluate = Callable[[Any], list[Any]]
"""The results of an equation, as JAX has them."""
Change = Callable[[Any, list[Any], Evaluate], list[Any]]
"""(equation, its operands, what evaluates an equation on them) → its results."""


@dataclass(frozen=True)
class Without:
    """Leaves out the primitives of these names that have no results, as those of debugging callbacks."""

    names: tuple[str, ...]

    def __call__(self, equation: Any, operands: list[Any], evaluate: Evaluate) -> list[Any]:
        return [] if equation.primitive.name in self.names and not equation.outvars else evaluate(equation)


@dataclass(frozen=True)
class WithParameters:
    """Sets parameters of primitives, by their names."""

    params: Mapping[str, Mapping[str, Any]]

    def __call__(self, equation: Any, operands: list[Any], evaluate: Evaluate) -> list[Any]:
        changed = self.params.get(equation.primitive.name)
        return evaluate(equation.replace(params={**equation.params, **changed}) if changed else equation)


@dataclass(frozen=True)
class Rewritten:
    """`fn`, each equation of which goes through `change`."""

    fn: Callable[..., Any]
    change: Change

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = as_function_of_arrays(self.fn, args, kwargs)
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), self._run(closed.jaxpr, closed.consts, arrays))

    def _run(self, jaxpr: Any, consts: Any, arguments: Any) -> list[Any]:
        values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arguments], strict=True))

        def evaluate(equation: Any) -> list[Any]:
            """Lets JAX bind one equation, for every version knows how."""
            operands = list(dict.fromkeys(v for v in equation.invars if not isinstance(v, core.Literal)))
            alone = jaxpr.replace(constvars=[], invars=operands, outvars=list(equation.outvars), eqns=[equation])
            # `bind` takes parameters in other forms than equations hold them, and differs between versions.
            return eval_jaxpr(alone, (), *(values[v] for v in operands))

        for equation in jaxpr.eqns:
            operands = [_value(v, values) for v in equation.invars]
            if (inner := inner_program(equation)) is not None:
                results = self._run(inner.jaxpr, inner.consts, operands)
            else:
                results = self.change(equation, operands, evaluate)
            values.update(zip(equation.outvars, results, strict=True))
        return [_value(v, values) for v in jaxpr.outvars]


def inner_program(equation: Any) -> Any:
    """The program of an inner jit; None of other equations."""
    return equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None


def _value(atom: Any, values: Mapping[Any, Any]) -> Any:
    if not isinstance(atom, core.Literal):
        return values[atom]
    return jnp.asarray(atom.val, getattr(atom.aval, "dtype", None))
