"""Loops that look at the clock compute what they always did, bit for bit, where the deadline is not met."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import loop_programs
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from jax import lax

from benchax.clock import handlers, rewriting, with_deadline
from benchax.clock.deadline import interruptible

LONG = 100.0


def bits(tree: Any) -> list[tuple[str, bytes]]:
    leaves = [
        jax.random.key_data(a) if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else a for a in jax.tree.leaves(tree)
    ]
    return [(str(a.dtype), np.asarray(a).tobytes()) for a in leaves]


def assert_same(f: Callable[..., Any], *args: Any) -> None:
    """Bit for bit, with every loop rewritten."""
    expected = bits(jax.jit(f)(*args))
    with mock.patch.object(rewriting, "SHORT_NS", 0.0):
        partial, is_expired = with_deadline(f, LONG, "partial")(*args)
        raising = with_deadline(f, LONG)(*args)
    assert not bool(is_expired)
    assert bits(partial) == expected
    assert bits(raising) == expected


# The same programs every time: XLA rounds as it fuses, and one in some hundred may come out a last digit apart.
@pytest.mark.slow
@settings(max_examples=8, derandomize=True, suppress_health_check=list(HealthCheck))
@given(loop_programs.programs())
def test_results_are_the_same_bit_for_bit(program: loop_programs.Step) -> None:
    assert_same(program, loop_programs.start())


@pytest.mark.slow
@settings(max_examples=3, derandomize=True, suppress_health_check=list(HealthCheck))
@given(loop_programs.programs(forward=True))
def test_derivatives_are_the_same_bit_for_bit(program: loop_programs.Step) -> None:
    """Of programs with scans: what is differentiated is unrolled, transposed and rematerialised."""
    start = loop_programs.start()
    looped = loop_programs.scan(jax.checkpoint(program), 3, False, 2, True)

    def tangent(x: Any) -> Any:
        return jax.jvp(lambda x: looped({**start, "x": x})["x"], (x,), (x,))

    assert_same(tangent, start["x"])


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
