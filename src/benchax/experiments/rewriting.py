"""A function with some of its operations changed: it is traced, and run again equation by equation.

Inner jits are inlined, as XLA does. On request, bodies of loops and branches, and the part that `jax.checkpoint`
computes again, are rewritten, too. They must give the same shapes and types; otherwise they stay unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import eval_jaxpr
from jax.extend import core

from benchax.errors import NotMeasured
from benchax.experiments.functions import wrapper
from benchax.program.evaluate import Apply, bind, interpret, retrace, shape_of
from benchax.program.jaxpr import open_program, programs_of, split_operands
from benchax.static_leaves import as_function_of_arrays

Change = Callable[[Any, list[Any]], list[Any]]
"""(equation, its operands) → its results; `bind` gives those that JAX has."""


def leave_out(names: Collection[str], equation: Any, operands: list[Any]) -> list[Any]:
    """A change: leaves out primitives with these names if they have no results, such as debugging callbacks."""
    return [] if equation.primitive.name in names and not equation.outvars else bind(equation, operands)


def with_parameters(params: Mapping[str, Mapping[str, Any]], equation: Any, operands: list[Any]) -> list[Any]:
    """A change: sets parameters of primitives, by their names."""
    changed = params.get(equation.primitive.name)
    return bind(equation.replace(params={**equation.params, **changed}) if changed else equation, operands)


def run_traced(fn: Callable[..., Any], args: Any, kwargs: Any, run: Callable[[Any, list[Any]], list[Any]]) -> Any:
    """Calls `fn` by `run`, which is given its traced program and the arrays, and returns the outputs of the program."""
    call, arrays = as_function_of_arrays(fn, args, kwargs)
    closed, shapes = jax.make_jaxpr(call, return_shape=True)(*arrays)
    return jax.tree.unflatten(jax.tree.structure(shapes), run(closed, arrays))


@wrapper
def rewritten(fn: Callable[..., Any], args: Any, kwargs: Any, change: Change, enters_loops: bool = False) -> Any:
    """Calls `fn`, with each of its equations passed through `change`."""

    def apply(equation: Any, operands: list[Any]) -> Sequence[Any]:
        if enters_loops and equation.primitive.name in WITH_BODIES:
            equation = _rewrite_bodies(equation, apply)
        if (inner := inner_program(equation)) is not None:
            return interpret(inner, operands, apply)
        return change(equation, operands)

    return run_traced(fn, args, kwargs, lambda closed, arrays: interpret(closed, arrays, apply))


def _rewrite_bodies(equation: Any, apply: Apply) -> Any:
    """The equation with its programs rewritten; as it is where one would no longer fit into its place."""
    try:
        params = retrace(equation.params, lambda program, given: interpret(program, given, apply))
    except NotMeasured:
        return equation
    changed = equation.replace(params=params)
    return changed if _returned_by(changed) == _returned_by(equation) else equation


def _returned_by(equation: Any) -> list[Any]:
    """Shapes and dtypes of what its programs return."""
    return [shape_of(v) for program in programs_of(equation) for v in open_program(program)[0].outvars]


WITH_BODIES = ("scan", "while", "cond", "checkpoint", "remat", "remat2")
"""Primitives whose parameters hold programs that can be given in another form (jax 0.6 to 0.10.2)."""


def inner_program(equation: Any) -> Any:
    """The program of an inner jit; None of other equations."""
    return equation.params.get("jaxpr") if equation.primitive.name in ("jit", "pjit") else None


# ---- running sums of bf16 and f16 in loops, carried in float32 ------------------------------------------------------
#
# A carry is a running sum where the body returns it with something added to it and nothing else: `carry + x`. Only that
# sum is wide; whatever else the body computes of the carry, it computes of the rounded one, as before. Without this,
# 10,000 ones add up to 256 in bf16: from there on 1 is less than half a digit.

LOW = ("bfloat16", "float16")
ADDITIONS = ("add", "add_any")
BODIES = {"scan": "jaxpr", "while": "body_jaxpr"}
"""The parameter that holds the body of a loop."""


def find_running_sums(equation: Any) -> dict[int, tuple[Any, int]]:
    """Finds the running sums of a loop. By its position among the carries, each has the addition in the body, and the
    place of the operand that is added. Any other equation has none."""
    if equation.primitive.name not in BODIES:
        return {}
    body = equation.params[BODIES[equation.primitive.name]].jaxpr
    makers = {out: eqn for eqn in body.eqns for out in eqn.outvars}
    # The inputs of the body, in the places of the operands of the loop.
    inputs = [*[None] * equation.params.get("cond_nconsts", 0), *body.invars]
    found: dict[int, tuple[Any, int]] = {}
    for i, (carry, total) in enumerate(zip(split_operands(equation, inputs).carry, body.outvars, strict=False)):
        made = None if isinstance(total, core.Literal) else makers.get(total)
        if made is None or made.primitive.name not in ADDITIONS or str(getattr(carry.aval, "dtype", "")) not in LOW:
            continue
        others = [at for at, v in enumerate(made.invars) if v is not carry]
        if len(others) == 1:
            found[i] = made, others[0]
    return found


def run_wide(equation: Any, operands: list[Any]) -> list[Any]:
    """The loop on these operands, its running sums in float32; what it returns is rounded once."""
    sums, params = find_running_sums(equation), equation.params
    consts, carry, xs = split_operands(equation, operands)
    body, count = params[BODIES[equation.primitive.name]], len(carry)
    dtypes = {i: carry[i].dtype for i in sums}

    def narrow(state: Sequence[Any]) -> list[Any]:
        return [s.astype(dtypes[i]) if i in sums else s for i, s in enumerate(state)]

    def step(state: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        wide: dict[int, Any] = {}

        def apply(inner: Any, values: list[Any]) -> list[Any]:
            results = bind(inner, values)
            for i, (addition, added) in sums.items():
                if inner is addition:
                    wide[i] = state[i] + values[added].astype(jnp.float32)
                    # The sum so far can be returned in each iteration as well.
                    results = [wide[i].astype(dtypes[i])]
            return results

        results = interpret(body, [*consts, *narrow(state), *x], apply)
        return [wide.get(i, value) for i, value in enumerate(results[:count])], results[count:]

    start = [s.astype(jnp.float32) if i in sums else s for i, s in enumerate(carry)]
    if equation.primitive.name == "scan":
        state, ys = scan_again(equation, step, start, xs)
        return [*narrow(state), *ys]
    condition, asked = params["cond_jaxpr"], operands[: params["cond_nconsts"]]
    return narrow(
        jax.lax.while_loop(
            lambda state: interpret(condition, [*asked, *narrow(state)])[0], lambda state: step(state, [])[0], start
        )
    )


def scan_again(scan: Any, step: Callable[..., Any], carry: Any, xs: Any) -> Any:
    """The results of a scan with another body."""
    params = scan.params
    return jax.lax.scan(
        step, carry, xs, length=params["length"], reverse=params["reverse"], unroll=params.get("unroll", 1)
    )


# ---- what a scan computes of its inputs alone, before it ------------------------------------------------------------
#
# An equation of the body that depends on no carry can run before the loop: once if it depends only on constants, or as
# one batch for all iterations if it depends on the scanned inputs. The products `x_t @ W` of a recurrent network then
# become one large product. The loop scans over these results instead of their inputs.

PRODUCTS = ("dot_general", "conv_general_dilated")
KEPT = ("random_bits", "random_split", "debug_callback", "debug_print", "io_callback", "pure_callback")
"""Effects stay where they are; and so do random numbers, which other shapes would change."""


def hoist(equation: Any, operands: list[Any]) -> list[Any]:
    """A change for `rewritten`: a scan, with what needs no carry computed before it."""
    parts = split_scan(equation) if equation.primitive.name == "scan" else None
    if parts is None:
        return bind(equation, operands)
    (before, loop, _), (consts, carry, xs) = parts, split_operands(equation, operands)
    body_consts = equation.params["jaxpr"].consts
    passed = jax.vmap(lambda *x: eval_jaxpr(before, body_consts, *consts, *x))(*xs)

    def step(state: list[Any], x: tuple[list[Any], list[Any]]) -> tuple[list[Any], list[Any]]:
        results = eval_jaxpr(loop, body_consts, *consts, *state, *x[0], *x[1])
        return results[: len(state)], results[len(state) :]

    carry, ys = scan_again(equation, step, carry, (xs, passed))
    return [*carry, *ys]


def split_scan(equation: Any) -> tuple[Any, Any, int] | None:
    """The body of a scan in two, and how many products are no longer in the loop:

        (constants, what is scanned over) → passed
        (constants, carries, what is scanned over, passed) → what the body gives

    None if no product can be taken out: XLA does as well by itself then, and the batch costs memory.
    """
    body = equation.params["jaxpr"].jaxpr
    consts, carries, xs = split_operands(equation, body.invars)
    if not xs:
        return None
    bound = set(carries)
    early: list[Any] = []
    late: list[Any] = []
    for eqn in body.eqns:
        needs_carry = any(v in bound for v in eqn.invars if not isinstance(v, core.Literal))
        if needs_carry or eqn.primitive.name in KEPT or eqn.effects:
            late.append(eqn)
            bound.update(eqn.outvars)
        else:
            early.append(eqn)
    taken = sum(eqn.primitive.name in PRODUCTS for eqn in early)
    if not taken:
        return None
    _, passed = crossing(early, [*(v for eqn in late for v in eqn.invars), *body.outvars])
    before = body.replace(invars=[*consts, *xs], outvars=passed, eqns=early)
    loop = body.replace(invars=[*body.invars, *passed], eqns=late)
    return before, loop, taken


def crossing(inside: Sequence[Any], later: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(what these equations take, what they make that is among `later`)"""
    made = dict.fromkeys(v for eqn in inside for v in eqn.outvars)
    taken = dict.fromkeys(v for eqn in inside for v in eqn.invars if not isinstance(v, core.Literal) and v not in made)
    wanted = {v for v in later if not isinstance(v, core.Literal)}
    return list(taken), [v for v in made if v in wanted]
