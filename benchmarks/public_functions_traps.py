"""Rows of `public_functions.py`: functions with inner constants, tables and work that no input reaches.

A timer that repeats a function inside a program is wrong about these unless it takes care: XLA may do such work once
for all repetitions, fold it in one program and not in the other, or leave it out.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from public_functions import from_table, make_input

X = "f32[512,128]"


@lru_cache
def _captured(text: str) -> Any:
    """An array that functions close over; made when first used, not when this file is imported."""
    with jax.ensure_compile_time_eval():  # the first use is inside a trace, whose tracers must not be kept
        return make_input(text, "captured")


def positional_encoding(x):
    position = jnp.arange(x.shape[0], dtype=x.dtype)[:, None]
    frequency = 1e-4 ** (jnp.arange(x.shape[1] // 2) / (x.shape[1] // 2))
    return x + jnp.concatenate([jnp.sin(position * frequency), jnp.cos(position * frequency)], -1)


def rotary_encoding(x):
    angle = jnp.outer(jnp.arange(x.shape[0]), 1e-4 ** (jnp.arange(0, x.shape[1], 2) / x.shape[1]))
    even, odd = x[:, ::2], x[:, 1::2]
    return jnp.stack([even * jnp.cos(angle) - odd * jnp.sin(angle), even * jnp.sin(angle) + odd * jnp.cos(angle)], -1)


def dropout_fixed_key(x):
    return jnp.where(jax.random.bernoulli(jax.random.key(0), 0.9, x.shape), x / 0.9, 0)


def noise_fixed_key(x):
    return x + jax.random.normal(jax.random.key(1), x.shape)


def key_from_input(x):
    key = jax.random.key(lax.bitcast_convert_type(x[0, 0], jnp.int32))
    return x + jax.random.normal(key, x.shape)


def loop_over_constants(x):
    return x + lax.fori_loop(0, 200, lambda i, c: c + jnp.sin(c * i), jnp.ones(512))


def invariant_work_in_scan(x, c):
    w = jnp.arange(4096.0)
    return lax.scan(lambda c, _: (c * 0.5 + jnp.sin(w * x[0]), None), c, None, length=16)[0]


def constant_work_in_scan(c):
    w = jnp.arange(4096.0)
    return lax.scan(lambda c, _: (c * 0.5 + jnp.sin(w), None), c, None, length=16)[0]


def collatz(x):
    def step(c):
        n, steps = c
        return jnp.where(n > 1, jnp.where(n % 2 == 0, n // 2, 3 * n + 1), n), steps + (n > 1)

    return lax.while_loop(lambda c: jnp.any(c[0] > 1), step, (x + 1, jnp.zeros_like(x)))[1]


def iota_gather(x):
    return x[(jnp.arange(x.shape[0]) * 7) % x.shape[0]]


def windowed_fft(x):
    window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * jnp.arange(x.shape[-1]) / x.shape[-1])
    return jnp.fft.rfft(x * window)


def causal_softmax(x):
    return jax.nn.softmax(jnp.where(jnp.tril(jnp.ones(x.shape, bool)), x, -jnp.inf))


def sinusoid_table(i):
    table = jnp.sin(jnp.arange(100.0)[:, None] * jnp.arange(64.0))
    return table[i]


def mel_like_bank(x):
    centre = jnp.linspace(0, 1, 40)[:, None]
    bank = jnp.maximum(0, 1 - 40 * jnp.abs(jnp.linspace(0, 1, x.shape[-1]) - centre))
    return jnp.log1p(jnp.abs(x @ bank.T))


def alibi(x):
    distance = jnp.abs(jnp.arange(x.shape[0])[:, None] - jnp.arange(x.shape[1]))
    return jax.nn.softmax(x - 0.1 * distance)


def random_features_fixed_key(x):
    return jnp.cos(x @ jax.random.normal(jax.random.key(2), (x.shape[-1], 64)))


def fixed_inverse(x):
    grid = jnp.arange(24.0)
    return x @ jnp.linalg.inv(jnp.exp(-jnp.abs(grid[:, None] - grid)))


TRAPS = {
    "positional_encoding": (positional_encoding, X),
    "rotary_encoding": (rotary_encoding, X),
    "dropout_fixed_key": (dropout_fixed_key, X),
    "noise_fixed_key": (noise_fixed_key, X),
    "key_from_input": (key_from_input, "f32[128,128]"),
    "random_features_fixed_key": (random_features_fixed_key, "f32[128,64]"),
    "loop_over_constants": (loop_over_constants, "f32[512]"),
    "invariant_work_in_scan": (invariant_work_in_scan, "f32[4]", "f32[4096]"),
    "constant_work_in_scan": (constant_work_in_scan, "f32[4096]"),
    "tril_mask": (lambda x: x * jnp.tril(jnp.ones(x.shape)), "f32[256,256]"),
    "causal_softmax": (causal_softmax, "f32[128,128]"),
    "alibi": (alibi, "f32[128,128]"),
    "linspace_grid": (lambda x: x * jnp.exp(-(jnp.linspace(-3, 3, 8192) ** 2)), "f32[8192]"),
    "grid_only_beside_scalar": (lambda x: x * jnp.sum(jnp.sin(jnp.linspace(0, 1, 65536))), "f32[]"),
    "eye_regularised": (lambda x: x @ x.T + 0.1 * jnp.eye(x.shape[0]), "f32[96,96]"),
    "one_hot_table": (lambda i: jnp.eye(100)[i] @ jnp.sqrt(jnp.arange(100.0 * 32).reshape(100, 32)), "i32[256]"),
    "captured_weights": (lambda x: x @ _captured("f32[256,256]"), "f32[64,256]"),
    "captured_and_transformed": (lambda x: x + jnp.sin(_captured("f32[65536]")), "f32[65536]"),
    "captured_softmax_weights": (lambda x: x @ jax.nn.softmax(_captured("f32[256,256]")), "f32[16,256]"),
    "captured_product": (lambda x: x + _captured("f32[128,128]") @ _captured("f32[128,128]"), "f32[128,128]"),
    "sinusoid_table": (sinusoid_table, "i32[256]"),
    "iota_gather": (iota_gather, X),
    "windowed_fft": (windowed_fft, "f32[32,512]"),
    "mel_like_bank": (mel_like_bank, "f32[64,257]"),
    "fixed_inverse": (fixed_inverse, "f32[64,24]"),
    "unused_input": (lambda x, y: jnp.sin(x), "f32[16384]", "f32[512,512]"),
    "input_without_influence": (lambda x: jnp.sin(jnp.arange(16384.0) * 0.1) + 0 * x.shape[0], "f32[16]"),
    "value_without_influence": (lambda x, i: jnp.tanh(x) + (i * 0).astype(jnp.float32)[0], "f32[16384]", "i32[4]"),
    "identity": (lambda x: x, "f32[65536]"),
    "identity_beside_result": (lambda x: (x, jnp.cos(x)), "f32[16384]"),
    "constant_beside_result": (lambda x: (jnp.cos(x), jnp.ones(16384)), "f32[16384]"),
    "shape_only": (lambda x: jnp.zeros_like(x), "f32[65536]"),
    "add_zero": (lambda x: x + 0, "f32[65536]"),
    "times_one_integers": (lambda x: x * 1, "i32[65536]"),
    "double_transpose": (lambda x: x.T.T + 1, "f32[256,256]"),
    "transpose_product": (lambda x, y: (y.T @ x.T).T, "f32[128,128]", "f32[128,128]"),
    "cond_on_data": (lambda x: lax.cond(jnp.sum(x) > 0, jnp.sin, lambda x: jnp.tanh(x) + 1, x), "f32[16384]"),
    "while_loop_on_data": (collatz, "i32[256]"),
    "same_work_twice": (lambda x: jnp.sin(x) + jnp.sin(x) * jnp.sin(x), "f32[16384]"),
    "dead_work": (lambda x: (jnp.linalg.svd(x), x + 1)[1], "f32[64,64]"),
}

ROWS = from_table("traps", TRAPS)
