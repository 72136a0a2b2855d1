"""Runs traced programs equation by equation: the one interpreter, and the one way to run a single equation."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr

from benchax.errors import NotMeasured
from benchax.program.index import Value
from benchax.program.jaxpr import is_closed, is_literal, is_program, open_program

Apply = Callable[[Any, list[Any]], Sequence[Any]]
"""(equation, its operands) → its results."""


def bind(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """Lets JAX run one equation. `Primitive.bind` takes parameters in other forms than equations hold them, and these
    differ between versions; `eval_jaxpr` knows them."""
    given = {v: one for v, one in zip(equation.invars, operands, strict=True) if not is_literal(v)}
    alone = _empty().replace(invars=list(given), outvars=list(equation.outvars), eqns=[equation])
    return list(eval_jaxpr(alone, (), *given.values()))


@functools.cache
def _empty() -> Any:
    """A jaxpr to make others of: each version of JAX has other parts of it."""
    return jax.make_jaxpr(lambda: None)().jaxpr


def interpret(
    program: Any,
    arguments: Sequence[Any],
    apply: Apply = bind,
    literal: Callable[[Any], Any] | None = None,
    const: Callable[[Any], Any] = lambda array: array,
) -> list[Any]:
    """Runs a program, its equations by `apply`, and returns its outputs.

    Args:
        program: a jaxpr, open or closed. Give it whole: since JAX 0.11 the jaxpr inside a closed one has constants too.
        literal: makes a number of one in the program; default: an array of its dtype.
        const: makes a value of each constant of the program.
    """
    jaxpr, consts = open_program(program)
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*map(const, consts), *arguments], strict=True))
    read = literal or number_of

    def of(atom: Any) -> Any:
        return read(atom) if is_literal(atom) else values[atom]

    for equation in jaxpr.eqns:
        results = apply(equation, [of(atom) for atom in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [of(atom) for atom in jaxpr.outvars]


def number_of(literal: Any) -> Any:
    """The number that a literal is, as an array."""
    dtype: Any = getattr(literal.aval, "dtype", None)
    return literal.val if dtype in (None, jax.dtypes.float0) else jnp.asarray(literal.val, dtype)


def retrace(
    params: Mapping[str, Any],
    run: Callable[[Any, list[Any]], Sequence[Any]],
    dtype: Callable[[Any], Any] = lambda dtype: dtype,
) -> dict[str, Any]:
    """The parameters of an equation, the programs among them traced again as `run` runs them on its arguments.

    Args:
        dtype: what values of a declared dtype have now.

    Raises:
        NotMeasured: a program takes or holds what a traced one cannot.
    """

    def traced(value: Any) -> Any:
        if not is_program(value):
            return value
        jaxpr, consts = open_program(value)
        if len(jaxpr.constvars) != len(consts) or any(shape_of(v) is None for v in jaxpr.invars):
            raise NotMeasured("an inner program takes something that isn't an array")
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, dtype(v.aval.dtype)) for v in jaxpr.invars]
        found = jax.make_jaxpr(lambda *arguments: run(value, list(arguments)))(*shapes)
        if is_closed(value):
            return found
        if found.consts:  # `jax.checkpoint` has nowhere to keep them
            raise NotMeasured("an inner program holds constants")
        return found.jaxpr

    return {name: jax.tree.map(traced, value, is_leaf=is_program) for name, value in params.items()}


def shape_of(variable: Any) -> Any:
    """Shape and dtype of a variable; None of a token or a reference, which has none."""
    aval = variable.aval
    if not hasattr(aval, "dtype") or not hasattr(aval, "shape") or hasattr(aval, "inner_aval"):
        return None
    return aval.shape, aval.dtype


def compute(values: Sequence[Value], known: Mapping[Value, Any]) -> list[Any]:
    """Computes values of one body from known ones: only the operations behind them, in their order.

    Raises:
        NotMeasured: an operation has effects or calls Python, or a value isn't known.
    """
    behind, found = {one for value in values for one in value.behind()}, dict(known)
    for op in values[0].body.ops if values else ():
        if not behind.intersection(op.makes):
            continue
        if op.equation.effects or "callback" in op.name:
            raise NotMeasured("it has effects besides its results, or calls Python")
        made = bind(op.equation, [look_up(found, value) for value in op.reads])
        found.update((value, one) for value, one in zip(op.makes, made, strict=True) if value not in known)
    return [look_up(found, value) for value in values]


def look_up(known: Mapping[Value, Any], value: Value) -> Any:
    """The array of a value.

    Raises:
        NotMeasured: it isn't known.
    """
    if value.literal is not None:
        return jnp.asarray(value.literal, value.dtype)
    if value in known:
        return known[value]
    if value.const is None:
        raise NotMeasured("a value that it depends on isn't known")
    return value.const
