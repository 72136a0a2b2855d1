"""A function with some of its operations changed: it is traced, and run again equation by equation.

Inner jits are inlined, as XLA does. On request, bodies of loops and branches, and the part that `jax.checkpoint`
computes again, are rewritten, too. They must give the same shapes and types; otherwise they stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend import core

from benchax.program.evaluate import bind, interpret
from benchax.program.jaxpr import open_program
from benchax.static_leaves import as_function_of_arrays

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
    """`fn`, with each of its equations passed through `change`."""

    fn: Callable[..., Any]
    change: Change
    enters_loops: bool = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call, arrays = as_function_of_arrays(self.fn, args, kwargs)
        closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), interpret(closed, arrays, self._apply))

    def _apply(self, equation: Any, operands: list[Any]) -> list[Any]:
        if self.enters_loops and equation.primitive.name in WITH_BODIES:
            equation = self._rewrite_bodies(equation)
        if (inner := inner_program(equation)) is not None:
            return interpret(inner, operands, self._apply)
        return self.change(equation, operands, lambda changed: bind(changed, operands))

    def _rewrite_bodies(self, equation: Any) -> Any:
        changed = {key: self._rewrite_value(value) for key, value in equation.params.items()}
        return equation.replace(params=changed)

    def _rewrite_value(self, value: Any) -> Any:
        """A parameter of an equation, each program in it rewritten."""
        if isinstance(value, tuple):
            return tuple(map(self._rewrite_value, value))
        if isinstance(value, core.ClosedJaxpr):
            found = self._rewrite_program(value)
            return value if found is None else found
        if isinstance(value, core.Jaxpr):
            found = self._rewrite_program(value)
            # `jax.checkpoint` has nowhere to keep constants.
            return value if found is None or found.consts else found.jaxpr
        return value

    def _rewrite_program(self, program: Any) -> Any:
        """None where it would no longer fit into its place."""
        jaxpr, consts = open_program(program)
        inputs = [_shape(v.aval) for v in jaxpr.invars]
        if None in inputs or (jaxpr.constvars and not consts):
            return None
        found = jax.make_jaxpr(lambda *xs: interpret(program, xs, self._apply))(*inputs)
        fits = [_shape(v.aval) for v in found.jaxpr.outvars] == [_shape(v.aval) for v in jaxpr.outvars]
        return found if fits else None


WITH_BODIES = ("scan", "while", "cond", "checkpoint", "remat", "remat2")
"""Primitives whose parameters hold programs that can be given in another form (jax 0.6 to 0.10.2)."""


def _shape(aval: Any) -> jax.ShapeDtypeStruct | None:
    """None of a token or a reference, which has none."""
    if not hasattr(aval, "dtype") or not hasattr(aval, "shape") or hasattr(aval, "inner_aval"):
        return None
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype)


def inner_program(equation: Any) -> Any:
    """The program of an inner jit; None of other equations."""
    return equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None
