"""Loops that look at the clock compute what they always did, bit for bit, where the deadline is not met."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchax.clock import handlers, rewriting, with_deadline
from benchax.clock.deadline import interruptible

WIDTH = 512
"""XLA:CPU compiles loops over less than 1 KiB in another way, with other last digits; `with_deadline` tells."""

State = dict[str, Any]
"""x: f32[WIDTH], s: f32[], h: bf16[2], i: i32[], k: a key."""


def start() -> State:
    x = jnp.sin(jnp.arange(WIDTH, dtype=jnp.float32))
    return {"x": x, "s": x[2], "h": x[:2].astype(jnp.bfloat16), "i": jnp.int32(3), "k": jax.random.key(7)}


def contract(state: State) -> State:
    """Multiplications that meet additions, which XLA contracts or not, as it finds them."""
    x = state["x"] * state["s"] + 0.7
    return {**state, "x": jnp.tanh(x) * 1.1 + state["x"][::-1] * 0.3, "s": x.mean() * 0.3 + state["s"] * 0.5}


def count(state: State) -> State:
    return {**state, "i": (state["i"] * 5 + 1) % 11, "h": state["h"] * 0.9 + state["s"].astype(jnp.bfloat16)}


def draw_bits(state: State) -> State:
    k, use = jax.random.split(state["k"])
    return {**state, "k": k, "x": state["x"] + 0.1 * jax.random.normal(use, (WIDTH,))}


def repeat(state: State) -> State:
    """As often as the state says."""
    return lax.fori_loop(0, state["i"], lambda j, s: count({**s, "s": s["s"] * 0.9 + j}), state)


def wait(state: State) -> State:
    """With a loop in its condition."""

    def goes_on(carry: Any) -> Any:
        return (carry[0] < 4) & (lax.fori_loop(0, 3, lambda _, s: contract(s), carry[1])["s"] < 50.0)

    return lax.while_loop(goes_on, lambda c: (c[0] + 1, draw_bits(c[1])), (0, state))[1]


def nested(state: State, **how: Any) -> State:
    """A scan that takes and gives rows, keys and truth values; in its body branches of which two are loops."""
    given = jnp.sin(jnp.arange(5 * WIDTH)).reshape(5, WIDTH) * state["s"]

    def body(state: State, row: Any) -> Any:
        state = lax.switch(state["i"] % 3, [contract, repeat, wait], {**state, "x": state["x"] * row + 1})
        return state, (state["x"], state["k"], state["i"] > 2)

    state, (rows, keys, marks) = lax.scan(body, count(state), given, **how)
    weights = jnp.arange(1.0, 6)[:, None] * (1 + marks[:, None])
    bits = jax.random.key_data(keys).sum().astype(jnp.int32)
    return {**state, "x": jnp.tanh(state["x"] + (rows * weights).sum(0)), "i": (state["i"] + bits) % 13}


def called(state: State) -> State:
    """By each call that JAX has."""
    smooth, inverse = jax.custom_jvp(wait), jax.custom_vjp(repeat)
    smooth.defjvp(lambda primals, tangents: (smooth(*primals), tangents[0]))
    inverse.defvjp(lambda state: (repeat(state), None), lambda _, g: (g,))
    for step in (jax.jit(nested), smooth, inverse, jax.checkpoint(repeat)):
        state = step(state)
    return state


def lanes(state: State) -> State:
    """vmapped: loops and branches whose predicates differ from lane to lane."""
    both = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    both["i"] = both["i"] + jnp.array([0, 4])
    return jax.tree.map(lambda leaf: leaf[1], jax.vmap(nested)(both))


def tangent(x: Any) -> Any:
    """What is differentiated is unrolled, transposed and rematerialised."""
    looped = lambda x: jax.checkpoint(lambda x: nested({**start(), "x": x}, unroll=2))(x)["x"]  # noqa: E731
    return jax.jvp(looped, (x,), (x,))


# ---- the same, bit for bit -----------------------------------------------------------------------------------------


LONG = 100.0


def bits(tree: Any) -> list[tuple[str, bytes]]:
    leaves = [
        jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in jax.tree.leaves(tree)
    ]
    return [(str(a.dtype), np.asarray(a).tobytes()) for a in leaves]


def assert_same(f: Callable[..., Any], *args: Any) -> None:
    """Bit for bit, with every loop rewritten."""
    expected = bits(jax.jit(f)(*args))
    with mock.patch.object(rewriting, "CPU", replace(rewriting.CPU, short_ns=0.0)):
        partial, is_expired = with_deadline(f, LONG, "partial")(*args)
        raising = with_deadline(f, LONG)(*args)
    assert not bool(is_expired)
    assert bits(partial) == expected
    assert bits(raising) == expected


@pytest.mark.slow
@pytest.mark.parametrize("fn", [called, lanes])
def test_results_are_the_same_bit_for_bit(fn: Callable[[State], State]) -> None:
    assert_same(fn, start())


@pytest.mark.slow
def test_derivatives_are_the_same_bit_for_bit() -> None:
    assert_same(tangent, start()["x"])


W = jnp.asarray(np.random.default_rng(0).standard_normal((32, 32)), jnp.float32) * 0.1
XS = jnp.asarray(np.random.default_rng(1).standard_normal((40, 32)), jnp.float32)


def rnn(xs: Any, **how: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h @ W + x), h * 2), jnp.zeros(32), xs, **how)


def loss(xs: Any, **how: Any) -> Any:
    return rnn(xs, **how)[1].sum()


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "a gradient": (jax.grad(loss), XS),
    "a gradient of a split transpose": (jax.grad(lambda xs: loss(xs, _split_transpose=True)), XS),
    "a hessian product": (lambda xs: jax.jvp(jax.grad(loss), (xs,), (xs,)), XS),
    "a gradient through remat": (jax.grad(jax.checkpoint(loss)), XS),
    "reversed and unrolled with a rest": (lambda xs: rnn(xs, reverse=True, unroll=7), XS),
    "unrolled altogether": (lambda xs: rnn(xs, unroll=True), XS[:5]),
    "one row": (rnn, XS[:1]),
    "one trip and a rest": (lambda xs: jax.jvp(lambda xs: rnn(xs, unroll=3), (xs,), (xs,)), XS[:5]),
    "one trip around a loop": (lambda xs: lax.scan(lambda c, x: (rnn(xs * x)[0], c), xs[0], xs[:1]), XS),
    "no rows": (rnn, XS[:0]),
    "vmapped": (jax.vmap(rnn), jnp.stack([XS, XS[::-1]])),
    "lanes that end one after the other": (
        jax.vmap(lambda n: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1]) + n), (0, 0.5))),
        jnp.array([7, 0, 3, 5]),
    ),
    "conjugate gradients": (lambda b: jax.scipy.sparse.linalg.cg(lambda v: W.T @ (W @ v) + v, b)[0], XS[0]),
    "a map": (lambda xs: lax.map(jnp.sin, xs), XS),
    "a cumulative scan": (lambda xs: lax.associative_scan(jnp.add, xs), XS),
    "small integers that wrap": (lambda n: lax.fori_loop(0, 1000, lambda i, n: n * 3 + 1, n), jnp.int8(3)),
    "halves": (lambda xs: lax.scan(lambda c, x: (c * 0.9 + x, c > 0), xs[0], xs), XS.astype(jnp.float16)),
    "complex": (lambda xs: lax.fori_loop(0, 50, lambda i, z: z * z * 0.3 + 0.1j, xs * (1 + 2j)), XS),
    "keys": (
        lambda k: lax.scan(lambda k, _: (jax.random.split(k)[0], (k, jax.random.bits(k))), k, None, length=9),
        jax.random.key(3),
    ),
}


LONG_TO_COMPILE = {
    "a gradient of a split transpose",
    "a hessian product",
    "reversed and unrolled with a rest",
    "unrolled altogether",
    "one trip and a rest",
    "a cumulative scan",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG_TO_COMPILE)) for name in CASES]
)
def test_results_are_the_same_for(name: str) -> None:
    assert_same(*CASES[name])


def test_what_is_rematerialised_is_kept_apart() -> None:
    """Else XLA would find that it has been computed before, and keep it."""
    kept = jax.grad(jax.checkpoint(lambda x: lax.fori_loop(0, 10**5, lambda _, x: jnp.sin(x), x)))

    program = jax.make_jaxpr(interruptible(kept))(handlers.NEVER, 1.0)

    assert str(program).count("optimization_barrier") == 1
