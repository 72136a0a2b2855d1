"""What is read from a jaxpr: equations at every depth, lines of the user's, scopes, inputs by their names."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled_texts import f32, module_of
from jax import lax

from benchax.inspecting.inspect import baked_in, find_captured
from benchax.program.hlo import parse
from benchax.program.jaxpr import equations, jaxpr_facts, split_operands
from benchax.results.inspection import JaxprFacts, Primitive

X = f32(4, 4)


def facts(fun: Any, *args: Any, static: tuple[int, ...] = (), **kwargs: Any) -> JaxprFacts:
    return jaxpr_facts(jax.jit(fun, static_argnums=static).trace(*args, **kwargs), static)


def primitive(found: JaxprFacts, name: str) -> Primitive:
    return next(p for p in found.primitives if p.name == name)


def looping(x: Any) -> Any:
    def turn(c: Any, _: None) -> Any:
        return lax.cond(c[0, 0] > 0, lambda c: lax.sin(c), lambda c: lax.cos(c), lax.sin(c)), None

    return lax.scan(turn, lax.sin(x), None, length=5)[0]


def test_nested_equations_count_where_they_stand_and_bodies_once() -> None:
    found = facts(looping, X)

    assert (primitive(found, "sin").count, primitive(found, "sin").in_loops) == (3, 2)
    assert (primitive(found, "scan").count, primitive(found, "scan").in_loops) == (1, 0)
    assert found.outer_equations == 2
    assert found.depth == 3
    assert found.equations == sum(p.count for p in found.primitives)
    assert found.equations_in_loops == found.equations - 2
    inner = jax.jit(lax.sin)
    assert primitive(facts(lambda x: inner(inner(x)), X), "sin").count == 2


def test_a_primitive_knows_the_line_and_the_scope_that_asked_for_it() -> None:
    def layered(x: Any) -> Any:
        with jax.named_scope("outer"), jax.named_scope("inner"):
            return jnp.tanh(x)

    tanh = primitive(facts(layered, X), "tanh")

    line = layered.__code__.co_firstlineno + 2
    assert tanh.lines == (f"{Path(__file__)}:{line}",)
    assert tanh.scopes == ("outer/inner",)


def test_inputs_are_called_as_the_user_calls_them_and_weak_types_are_seen() -> None:
    found = facts(lambda n, tree, k, *, scale: {"sum": tree["w"] * k + scale}, 3, {"w": X}, 2.0, scale=X, static=(0,))

    told = [(a.path, a.spec, a.is_weak, a.size_bytes) for a in found.inputs]
    assert told == [
        ("args[1]['w']", "f32[4,4]", False, 64),
        ("args[2]", "f32[]", True, 4),
        ("kwargs['scale']", "f32[4,4]", False, 64),
    ]
    assert [(a.path, a.spec) for a in found.outputs] == [("result['sum']", "f32[4,4]")]
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 3))
    assert facts(lambda k: jax.random.key_data(k), keys).inputs[0].spec == "key[3]"


W = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32))


def test_captured_and_baked_in_differ_where_xla_folds() -> None:
    """The sums of W's columns go into the program, W itself does not."""
    traced = jax.jit(lambda x: x + W.sum(0)).trace(f32(64))
    program = parse(traced.lower().compile().as_text() or "")

    (captured,) = find_captured(traced)
    assert (captured.spec, captured.size_bytes) == ("f32[64,64]", W.nbytes)
    assert f"reduce_sum at {__file__}" in captured.where
    assert sum(c.size_bytes for c in baked_in(program)) < W.nbytes / 10
    assert baked_in(program)[0].spec == "f32[64]"
    whole = baked_in(module_of(lambda x: x @ W, f32(64, 64)))[0]
    assert (whole.spec, whole.size_bytes) == ("f32[64,64]", W.nbytes)


@pytest.mark.parametrize("outer", [lambda inner, x: inner(inner(x)) @ W, lambda inner, x: inner(x) + 1])
def test_an_array_that_an_inner_jit_closes_over_is_captured_once(outer: Any) -> None:
    inner = jax.jit(lambda x: x @ W)
    traced = jax.jit(functools.partial(outer, inner)).trace(f32(64, 64))

    assert [c.size_bytes for c in find_captured(traced)] == [W.nbytes]


ONE, ROWS = jnp.ones(()), jnp.ones(5)


def scanning(consts: list[Any], carry: list[Any], xs: list[Any]) -> Any:
    def turn(carry: list[Any], rows: list[Any]) -> Any:
        total = sum([*consts, *carry, *rows])
        return [c * total for c in carry], total

    return lax.scan(turn, carry, xs, length=5)


@pytest.mark.parametrize(("consts", "carry", "xs"), [(0, 1, 1), (2, 1, 0), (3, 0, 2), (1, 2, 3)])
def test_operands_of_a_scan_come_in_the_groups_that_it_was_called_with(consts: int, carry: int, xs: int) -> None:
    program = jax.make_jaxpr(scanning)([ONE] * consts, [ONE] * carry, [ROWS] * xs).jaxpr
    scan = next(each.equation for each in equations(program) if each.equation.primitive.name == "scan")

    groups = split_operands(scan, [program.invars.index(v) for v in scan.invars])

    positions = list(range(consts + carry + xs))
    assert [sorted(group) for group in groups] == [
        positions[:consts],
        positions[consts : consts + carry],
        positions[consts + carry :],
    ]


@pytest.mark.parametrize(
    ("transform", "x"), [(jax.grad, ONE), (jax.hessian, ONE), (lambda f: jax.jit(jax.vmap(f)), ROWS)]
)
def test_operands_of_a_transformed_scan_fit_its_results(transform: Any, x: Any) -> None:
    def f(x: Any) -> Any:
        carry, ys = scanning([jnp.sin(x)], [x, x + 1], [ROWS])
        return carry[0] + ys.sum()

    scans = [e.equation for e in equations(jax.make_jaxpr(transform(f))(x)) if e.equation.primitive.name == "scan"]

    assert scans
    for scan in scans:
        consts, carry, xs = split_operands(scan, scan.invars)
        assert [v.aval.shape for v in carry] == [v.aval.shape for v in scan.outvars[: len(carry)]]
        assert all(v.aval.shape[0] == 5 for v in (*xs, *scan.outvars[len(carry) :]))
        inside = [*(v.aval.shape for v in (*consts, *carry)), *(v.aval.shape[1:] for v in xs)]
        assert inside == [v.aval.shape for v in scan.params["jaxpr"].jaxpr.invars]


def test_of_a_while_loop_come_the_operands_that_its_body_reads() -> None:
    def fn(limit: Any, step: Any, x: Any) -> Any:
        return lax.while_loop(lambda c: c < limit, lambda c: c + step, x)

    program = jax.make_jaxpr(fn)(ONE, ONE, ONE).jaxpr
    (loop,) = program.eqns

    assert split_operands(loop, [program.invars.index(v) for v in loop.invars]) == ([1], [2], [])
