"""Verification, end to end: no right program is called wrong, and no wrong one right.

A wrong program is a function that does something else when it is traced: `wrong(right, compiled)` runs `right` as it
stands and `compiled` under `jax.jit`, which is what a miscompilation looks like from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import linalg, special

from benchax.errors import NotMeasured
from benchax.measuring.record import Notes
from benchax.measuring.verification import verify

Program = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its inputs. Arrays of NumPy among these become JAX's when they are used: to import this file, as each
process does that collects tests, computes little."""

BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32
E4M3, E5M2 = jnp.float8_e4m3fn, jnp.float8_e5m2


def data(*shape: int, seed: int = 0, dtype: Any = F32, scale: float = 1.0, offset: float = 0.0) -> Any:
    """Normal numbers of any type, the same in every process."""
    return np.random.default_rng(seed).normal(offset, scale, shape).astype(dtype)


KEY = jax.random.key(7)
SYMMETRIC = data(24, 24) + data(24, 24).T
POSITIVE = data(24, 24) @ data(24, 24).T + 24 * np.eye(24, dtype=F32)
HILBERT = 1 / (np.arange(8, dtype=F32)[:, None] + np.arange(8, dtype=F32)[None, :] + 1)
SUMS_TO_ZERO = np.concatenate([data(5000, scale=100.0), -data(5000, scale=100.0)[::-1]])


def rnn(w: Any, h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h.sum()

    return lax.scan(step, h, xs)


def newton(x: Any) -> Any:
    def unfinished(state: Any) -> Any:
        y, before = state
        return jnp.max(jnp.abs(y - before)) > 1e-6

    return lax.while_loop(unfinished, lambda s: (0.5 * (s[0] + x / s[0]), s[0]), (x, jnp.zeros_like(x)))[0]


def mlp(x: Any, w1: Any, w2: Any) -> Any:
    return jax.nn.softmax(jax.nn.gelu(x @ w1) @ w2, axis=-1)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / jnp.sqrt(jnp.asarray(q.shape[-1], q.dtype)), axis=-1) @ v


def layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6)


def adam(p: Any, g: Any, m: Any, v: Any) -> Any:
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - 1e-3 * (m / 0.1) / (jnp.sqrt(v / 0.001) + 1e-8), m, v


def dropout(key: Any, x: Any) -> Any:
    return jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)


def logistic_map(x: Any) -> Any:
    return lax.fori_loop(0, 200, lambda i, x: 3.99 * x * (1 - x), x)


def chain(x: Any) -> Any:
    for _ in range(12):
        x = jnp.sin(x) * jnp.asarray(1.1, x.dtype) + x * jnp.asarray(0.3, x.dtype)
    return x


@jax.custom_jvp
def softplus(x: Any) -> Any:
    return jnp.logaddexp(x, 0.0)


softplus.defjvp(lambda p, t: (softplus(*p), jax.nn.sigmoid(p[0]) * t[0]))


def row_sums_of_scan(x: Any) -> Any:
    return lax.scan(lambda total, row: (total + row, None), jnp.zeros(x.shape[1], x.dtype), x)[0]


def branches(x: Any) -> Any:
    return lax.cond(x[0] > 0, lambda x: jnp.exp(x), lambda x: jnp.log1p(x * x), x)


HONEST: dict[str, Program] = {
    # random numbers
    "draws": (
        lambda k, x: (
            jax.random.normal(k, (1000,)), jax.random.normal(k, (1000,), BF16), jax.random.randint(k, (100,), 0, 1000),
            jax.random.uniform(k, (1000,), minval=-2.0, maxval=3.0), jax.random.categorical(k, x, shape=(200,)),
            jax.random.permutation(k, 100), jax.random.bits(k, (100,)), jax.random.split(k, 4),
        ),
        (KEY, data(10)),
    ),
    "draws_in_loops": (
        lambda k: (
            jax.random.gamma(k, 2.5, (100,)), jax.random.poisson(k, 4.0, (100,)),
            jax.random.truncated_normal(k, -1.0, 1.0, (100,)),
        ),
        (KEY,),
    ),
    "old_key": (lambda k: jax.random.normal(k, (100,)), (jax.random.PRNGKey(3),)),
    "dropout": (dropout, (KEY, data(64, 64))),
    "noise_in_a_loop": (
        lambda k: lax.scan(lambda t, k: (t + jax.random.normal(k), t), 0.0, jax.random.split(k, 50)),
        (KEY,),
    ),
    # linear algebra
    "eigh": (jnp.linalg.eigh, (SYMMETRIC,)),
    "eigh_of_identity": (lambda x: jnp.linalg.eigh(x @ x.T / 4), (2 * np.eye(12, dtype=F32),)),
    "eigh_of_a_product": (lambda x: jnp.linalg.eigh(x @ x.T), (data(24, 40),)),
    "svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), (data(30, 20),)),
    "svd_of_low_rank": (lambda x: jnp.linalg.svd(x @ x.T), (data(20, 3),)),
    "pinv": (jnp.linalg.pinv, (data(30, 20),)),
    "qr": (jnp.linalg.qr, (data(30, 20),)),
    "eig": (jnp.linalg.eig, (data(16, 16),)),
    "cholesky": (jnp.linalg.cholesky, (POSITIVE,)),
    "solve": (jnp.linalg.solve, (data(24, 24), data(24, 3, seed=1))),
    "inverse_of_hilbert": (jnp.linalg.inv, (HILBERT,)),
    "determinant": (jnp.linalg.det, (data(24, 24),)),
    "expm": (linalg.expm, (data(12, 12),)),
    "lstsq": (lambda a, b: jnp.linalg.lstsq(a, b)[0], (data(30, 10), data(30, seed=1))),
    "pca_sum": (lambda x: jnp.linalg.eigh(x @ x.T)[1][:, -1].sum(), (data(16, 40),)),
    "largest_direction": (lambda x: jnp.linalg.svd(x)[0][:, :3], (data(20, 20),)),
    # sums that cancel
    "sum_to_zero": (jnp.sum, (SUMS_TO_ZERO,)),
    "mean_of_centred": (lambda x: (x - x.mean(0)).sum(0), (data(2000, 8, offset=10.0),)),
    "difference_of_sums": (lambda x: jnp.sum(x) - jnp.sum(x[::-1]), (data(10000, scale=10.0),)),
    "gradient_at_minimum": (
        jax.grad(lambda x: ((x - x.mean()) ** 2).mean() + (x - 1).sum() ** 2),
        (np.ones(50, F32) + F32(1e-4),),
    ),
    "added_and_taken": (lambda x, y: (x + y) - x - y, (data(100, scale=1e4), data(100, seed=1))),
    "rotation_residual": (lambda x: jnp.sin(x) ** 2 + jnp.cos(x) ** 2 - 1, (data(500),)),
    "alternating_sum": (lambda x: (x * (-1.0) ** jnp.arange(x.size)).sum(), (np.full(10000, 3.3, F32),)),
    "inverse_residual": (lambda x: x @ jnp.linalg.inv(x) - jnp.eye(24), (POSITIVE,)),
    "offset_variance": (jnp.var, (data(10000, offset=3000.0),)),
    "variance_by_squares": (lambda x: (x * x).mean() - x.mean() ** 2, (data(10000, offset=100.0),)),
    "expm1_by_hand": (lambda x: (jnp.exp(x) - 1 - x) / (x * x), (data(100, scale=1e-3),)),
    # networks
    "mlp": (mlp, (data(32, 64), data(64, 128, seed=1), data(128, 10, seed=2))),
    "mlp_gradient": (
        jax.grad(lambda w1, w2, x: -jnp.log(mlp(x, w1, w2)[:, 0]).mean(), argnums=(0, 1)),
        (data(64, 32, seed=1, scale=0.1), data(32, 10, seed=2), data(16, 64)),
    ),
    "mlp_bf16": (mlp, (data(32, 64, dtype=BF16), data(64, 128, seed=1, dtype=BF16), data(128, 10, seed=2, dtype=BF16))),
    "mlp_f16": (
        mlp,
        (data(32, 64, dtype=F16), data(64, 128, seed=1, dtype=F16, scale=0.2), data(128, 10, seed=2, dtype=F16)),
    ),
    "attention": (attention, (data(48, 16), data(48, 16, seed=1), data(48, 16, seed=2))),
    "attention_bf16": (attention, tuple(data(48, 16, seed=s, dtype=BF16) for s in range(3))),
    "layer_norm": (layer_norm, (data(32, 128, offset=5.0),)),
    "layer_norm_bf16": (layer_norm, (data(32, 128, offset=5.0, dtype=BF16),)),
    "logsumexp": (lambda x: special.logsumexp(x, axis=-1), (data(32, 100, scale=30.0),)),
    "adam": (adam, tuple(data(100, seed=s, scale=0.1) ** (2 if s == 3 else 1) for s in range(4))),
    "convolution": (
        lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME"),
        (data(2, 3, 16, 16), data(8, 3, 3, 3, seed=1)),
    ),
    "convolution_bf16": (
        lambda x, w: jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "SAME")),
        (data(2, 3, 16, 16, dtype=BF16), data(8, 3, 3, 3, seed=1, dtype=BF16)),
    ),
    "pooling": (lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 4, 4), (1, 2, 2), "SAME"), (data(3, 32, 32),)),
    "embedding": (lambda t, i: t[i].sum(1), (data(100, 16), np.arange(200, dtype=np.int32).reshape(20, 10) % 100)),
    "embedding_gradient": (
        jax.grad(lambda t, i: (t[i] ** 2).sum()),
        (data(100, 16), np.arange(200, dtype=np.int32).reshape(20, 10) % 100),
    ),
    "one_hot_argmax": (lambda x: jax.nn.one_hot(x.argmax(-1), 10), (data(50, 10),)),
    # narrow types
    "matmul_bf16": (lambda a, b: a @ b, (data(64, 256, dtype=BF16), data(256, 64, seed=1, dtype=BF16))),
    "matmul_f16": (lambda a, b: a @ b, (data(64, 256, dtype=F16), data(256, 64, seed=1, dtype=F16))),
    "matmul_f8": (
        lambda a, b: lax.dot(a, b, preferred_element_type=F32),
        (data(32, 64, dtype=E4M3), data(64, 32, seed=1, dtype=E4M3)),
    ),
    "product_f8": (lambda x, y: x * y, (data(256, dtype=E4M3), data(256, seed=1, dtype=E4M3))),
    "three_products_e5m2": (lambda x, y: x * y * y + x, (data(256, dtype=E5M2), data(256, seed=1, dtype=E5M2))),
    "three_products_f8": (lambda x, y: x * y * y + x, (data(256, dtype=E4M3), data(256, seed=1, dtype=E4M3))),
    "chain_bf16": (chain, (data(500, dtype=BF16),)),
    "chain_f16": (chain, (data(500, dtype=F16),)),
    "chain_of_ones_bf16": (chain, (np.ones(500, BF16),)),
    "there_and_back": (lambda x: x.astype(BF16).astype(F32) * 3.3, (data(500),)),
    "sum_bf16": (jnp.sum, (data(5000, dtype=BF16),)),
    "sum_f16": (lambda x: x.sum(0), (data(500, 8, dtype=F16),)),
    "cumsum_bf16": (jnp.cumsum, (data(300, dtype=BF16),)),
    "mean_bf16_of_ones": (lambda x: (x * 1.01).mean() / 3, (np.ones(1000, BF16),)),
    "quantised": (lambda x: jnp.round(x / 0.05).astype(jnp.int8), (data(4000, scale=0.5),)),
    "scan_bf16": (rnn, (data(16, 16, dtype=BF16, scale=0.3), data(4, 16, dtype=BF16), data(30, 4, 16, dtype=BF16))),
    # order
    "order": (
        lambda x: (
            x.argmax(-1), lax.top_k(x, 5), jnp.sort(x * 1.7 + 0.3), jnp.argsort(x * x), jnp.median(x),
            jnp.histogram(x * 0.1, bins=20)[0],
        ),
        (data(50, 100),),
    ),
    "argmax_of_a_tie": (lambda x: jnp.argmax(jnp.sin(x) ** 2 + jnp.cos(x) ** 2), (data(500),)),
    "floor_on_the_edge": (lambda x: jnp.floor(x * 10.0).astype(jnp.int32), (np.arange(100, dtype=F32) / F32(10),)),
    "count_above": (lambda x: (jnp.sqrt(x) ** 2 >= x).sum(), (np.arange(1000, dtype=F32),)),
    # loops
    "rnn": (rnn, (data(16, 16, scale=0.3), data(4, 16), data(50, 4, 16))),
    "newton": (newton, (np.abs(data(64)) + 0.1,)),
    "scanned_sums": (row_sums_of_scan, (data(3000, 8),)),
    "scanned_sum_of_tenths": (row_sums_of_scan, (np.full((20000, 2), 0.1, F32),)),
    "cumsum": (jnp.cumsum, (data(3000),)),
    "cumprod": (jnp.cumprod, (1 + data(500, scale=0.01),)),
    "associative_scan": (lambda x: lax.associative_scan(jnp.add, x), (data(1000),)),
    "branches": (branches, (data(100),)),
    "branches_in_a_loop": (lambda x: lax.map(lambda r: branches(r), x), (data(10, 10),)),
    "custom_jvp": (jax.value_and_grad(lambda x: softplus(x * 3).sum()), (data(100),)),
    "remat": (jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.exp(x)).sum())), (data(100),)),
    "logistic_map": (logistic_map, (np.array([0.3, 0.41, 0.77], F32),)),
    # whole numbers
    "whole_numbers": (
        lambda x, y: (
            jnp.sum(x), (y * 7919).prod(), y.astype(jnp.int8).sum(dtype=jnp.int8), jnp.mean(x), (x > 9).any(),
            jnp.bincount(y % 10, length=10), lax.population_count(x.astype(jnp.uint32)), (y > 0).all(),
        ),
        (np.arange(100000, dtype=np.int32) * np.int32(30000), np.arange(1, 50, dtype=np.int32)),
    ),
    "uint_bits": (lambda x: (x << 13) ^ (x >> 7) ^ ~x, (np.arange(1000, dtype=np.uint32) * np.uint32(2654435761),)),
    "int8_dot": (
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (np.arange(256).astype(np.int8).reshape(16, 16), np.ones((16, 16), np.int8)),
    ),
    # special functions and the like
    "sin_of_large": (lambda x: jnp.sin(x * 1e5), (data(500),)),
    "special": (
        lambda x: (special.gammaln(x), special.erf(x), special.digamma(x), special.i0e(x), x**5, x**0.5, jnp.cbrt(x)),
        (np.abs(data(200)) + 0.1,),
    ),
    "erfinv": (lambda x: (special.erfinv(jnp.tanh(x)), jnp.exp2(x)), (data(200, scale=3.0),)),
    "fft": (lambda x: jnp.fft.fft(x), (data(1024),)),
    "fft_and_back": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x)) - x, (data(1000),)),
    "complex_product": (lambda x: (x @ x.T.conj(), jnp.exp(1j * x.real)), (data(16, 16) + 1j * data(16, 16, seed=1),)),
    "polynomial": (lambda x: jnp.polyval(jnp.array([1.0, -3.0, 3.0, -1.0]), x), (1 + data(100, scale=1e-3),)),
    "log_of_zero": (lambda x: jnp.log(jnp.maximum(x, 0)), (data(100),)),
    "not_a_number": (lambda x: jnp.sqrt(x), (data(100),)),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.uint32), (data(100),)),
    "explicit_cast": (
        lambda x: jnp.asarray(x, jnp.float32) * jnp.float32(1.1) + jnp.arange(8, dtype=jnp.float32),
        (data(8),),
    ),
    "scatter_add": (lambda x, i: jnp.zeros(10).at[i].add(x), (data(1000), np.arange(1000, dtype=np.int32) % 10)),
    "segment_sum_bf16": (
        lambda x, i: jax.ops.segment_sum(x, i, 10),
        (data(1000, dtype=BF16), np.arange(1000, dtype=np.int32) % 10),
    ),
    "identity": (lambda x: x, (data(100),)),
    "nothing_but_constants": (lambda: jnp.linspace(0, 1, 50) ** 2, ()),
}  # fmt: skip


def wrong(right: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
    def function(*args: Any) -> Any:
        traced = any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(args))
        return (compiled if traced else right)(*args)

    return function


def scaled(factor: float) -> Callable[..., Any]:
    return wrong(lambda x: x, lambda x: (x.astype(F32) * factor).astype(x.dtype))


def scaled_in_type(factor: float) -> Callable[..., Any]:
    return wrong(lambda x: x * jnp.asarray(1.0, x.dtype), lambda x: x * jnp.asarray(factor, x.dtype))


SQUARE = data(32, 32)

WRONG: dict[str, Program] = {
    "1.08_bf16": (scaled(1.08), (data(256, dtype=BF16),)),
    "1.08_bf16_in_type": (scaled_in_type(1.08), (data(256, dtype=BF16),)),
    "1.08_bf16_of_ones": (scaled(1.08), (np.ones(64, BF16),)),
    "1.08_bf16_scalar": (scaled_in_type(1.08), (np.asarray(1.7, BF16),)),
    "1.03_f16": (scaled(1.03), (data(256, dtype=F16),)),
    "1.03_f16_in_type": (scaled_in_type(1.03), (data(256, dtype=F16),)),
    "1.25_e4m3": (scaled(1.25), (data(256, dtype=E4M3),)),
    "1.25_e4m3_in_type": (scaled_in_type(1.25), (data(256, dtype=E4M3),)),
    "1.25_e5m2": (scaled(1.25), (data(256, dtype=E5M2),)),
    "1.25_e5m2_in_type": (scaled_in_type(1.25), (data(256, dtype=E5M2),)),
    "1.25_e5m2_of_ones": (scaled_in_type(1.25), (np.ones(16, E5M2),)),
    "1.25_e4m3_of_16": (scaled_in_type(1.25), (data(16, dtype=E4M3),)),
    "1.25_e5m2_of_64": (scaled_in_type(1.25), (data(64, dtype=E5M2),)),
    "1.001_f32": (scaled(1.001), (data(256),)),
    "1.00001_f32": (scaled(1.00001), (data(256),)),
    "1.0001_matmul": (wrong(lambda x: x @ x, lambda x: 1.0001 * (x @ x)), (SQUARE,)),
    "1.08_mlp_bf16": (
        wrong(mlp, lambda *a: (mlp(*a) * 1.08).astype(BF16)),
        tuple(data(*shape, seed=s, dtype=BF16, scale=0.1) for s, shape in enumerate([(32, 64), (64, 128), (128, 10)])),
    ),
    "1.08_sum_bf16": (wrong(jnp.sum, lambda x: jnp.sum(x) * 1.08), (data(1000, dtype=BF16, offset=1.0),)),
    "1.03_chain_f16": (wrong(chain, lambda x: chain(x) * F16(1.03)), (data(500, dtype=F16),)),
    "transposed": (wrong(lambda x: x @ x, lambda x: (x @ x).T), (SQUARE,)),
    "dropped_term": (wrong(lambda x: x + 1e-4 * x**2, lambda x: x), (data(100),)),
    "sum_without_the_last": (wrong(jnp.sum, lambda x: jnp.sum(x[:-1])), (data(1000, offset=1.0),)),
    "sum_without_the_last_row": (wrong(lambda x: x.sum(0), lambda x: x[:-1].sum(0)), (data(1000, 8),)),
    "cumsum_off_by_one": (wrong(jnp.cumsum, lambda x: jnp.cumsum(x) - x), (data(1000),)),
    "swapped": (wrong(lambda x: (x + 1, x + 2), lambda x: (x + 2, x + 1)), (data(100),)),
    "sign": (wrong(jnp.sin, lambda x: -jnp.sin(x)), (data(100),)),
    "sign_of_one": (wrong(jnp.sin, lambda x: jnp.sin(x).at[3].multiply(-1)), (data(10000),)),
    "one_element_bf16": (wrong(lambda x: x * 2, lambda x: (x * 2).at[3].set(0)), (1 + data(10000, dtype=BF16),)),
    "cancelling_sum_twice": (
        wrong(lambda x: x.sum(), lambda x: 2 * x.sum()),
        (np.concatenate([SUMS_TO_ZERO, np.ones(5, F32)]),),
    ),
    "cancelling_sum_dropped": (wrong(jnp.sum, lambda x: jnp.sum(x[1:])), (SUMS_TO_ZERO,)),
    "variance_of_one_less": (wrong(jnp.var, lambda x: jnp.var(x, ddof=1)), (data(1000, offset=10.0),)),
    "integer_off_by_one": (wrong(lambda x: x, lambda x: x + 1), (np.arange(100, dtype=np.int32),)),
    "integer_one_off": (wrong(lambda x: x, lambda x: x.at[50].add(1)), (np.arange(100, dtype=np.int32),)),
    "integer_sum_off": (wrong(jnp.sum, lambda x: jnp.sum(x) + 1), (np.arange(100000, dtype=np.int32),)),
    "argmax_off": (wrong(lambda x: x.argmax(-1), lambda x: x.argmax(-1) + 1), (data(50, 100),)),
    "quantised_off": (
        wrong(lambda x: jnp.round(x / 0.05).astype(jnp.int8), lambda x: jnp.round(x / 0.05).astype(jnp.int8) + 1),
        (data(4000, scale=0.5),),
    ),
    "boolean": (wrong(lambda x: x > 0, lambda x: x < 0), (data(100),)),
    "not_a_number": (wrong(lambda x: x, lambda x: x.at[3].set(jnp.nan)), (data(100),)),
    "infinite": (wrong(lambda x: x * 1.5, lambda x: x / 0), (data(100),)),
    "zero": (wrong(lambda x: x * 1.5, lambda x: x * 0), (data(100),)),
    "scaled_eigenvectors": (
        wrong(jnp.linalg.eigh, lambda x: (jnp.linalg.eigh(x)[0], jnp.linalg.eigh(x)[1] * 1.08)),
        (SYMMETRIC,),
    ),
    "scaled_eigenvalues": (
        wrong(jnp.linalg.eigh, lambda x: (jnp.linalg.eigh(x)[0] * 1.001, jnp.linalg.eigh(x)[1])),
        (SYMMETRIC,),
    ),
    "scaled_pinv": (wrong(jnp.linalg.pinv, lambda x: jnp.linalg.pinv(x) * 1.01), (data(30, 20),)),
    "transposed_solve": (
        wrong(jnp.linalg.solve, lambda a, b: jnp.linalg.solve(a.T, b)),
        (data(24, 24), data(24, 3, seed=1)),
    ),
    "other_draw": (
        wrong(lambda k: jax.random.normal(k, (100,)), lambda k: jax.random.normal(jax.random.fold_in(k, 1), (100,))),
        (KEY,),
    ),
    "scan_one_step_short": (wrong(row_sums_of_scan, lambda x: row_sums_of_scan(x[:-1])), (data(300, 8),)),
    "mean_of_other_axis": (wrong(lambda x: x.mean(0), lambda x: x.mean(1)), (SQUARE,)),
    "conjugate": (wrong(lambda x: x * 2, lambda x: (x * 2).conj()), (data(16) + 1j * data(16, seed=1),)),
    "fft_unscaled": (wrong(jnp.fft.ifft, lambda x: jnp.fft.ifft(x) * 1.001), (data(256).astype(jnp.complex64),)),
    "softmax_without_max": (
        wrong(lambda x: jax.nn.softmax(x), lambda x: jnp.exp(x) / jnp.exp(x).max()),
        (data(10, 10),),
    ),
    "layer_norm_epsilon": (
        wrong(layer_norm, lambda x: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-3)),
        (data(32, 128),),
    ),
    "stale_rng": (wrong(dropout, lambda k, x: x), (KEY, data(64, 64))),
}


# ---- no right one is called wrong, and no wrong one right ----------------------------------------------------------


# 230 programs, each compiled in several ways, one of them as users compile it
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized")]

UNDECIDED = {
    "svd_of_low_rank",
    "inverse_of_hilbert",
    "sum_to_zero",
    "mean_of_centred",
    "difference_of_sums",
    "added_and_taken",
    "rotation_residual",
    "inverse_residual",
    "expm1_by_hand",
    "argmax_of_a_tie",
    "floor_on_the_edge",
    "logistic_map",
    "fft_and_back",
    "polynomial",
}
"""What they return is made of rounding."""


def verdict(subject: Any) -> str:
    """Of the mode "float64", in which the result is compared with that of the eager function, too."""
    notes = Notes()
    try:
        numerics = verify(subject, "float64", notes=notes)
    except NotMeasured as error:
        return "undecided" if notes.undecided else error.problem
    return "agrees" if numerics.agrees else numerics.why


@pytest.mark.parametrize("name", HONEST)
def test_a_right_result_is_never_called_wrong(name: str, subject: Any) -> None:
    fn, inputs = HONEST[name]
    expected = {"agrees", "undecided"} if name in UNDECIDED else {"agrees"}

    found = verdict(subject(fn, *jax.tree.map(jnp.asarray, inputs)))

    assert found in expected


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_always_called_wrong(name: str, subject: Any) -> None:
    fn, inputs = WRONG[name]

    numerics = verify(subject(fn, *jax.tree.map(jnp.asarray, inputs)), "eager")

    assert not numerics.agrees
    assert numerics.why
