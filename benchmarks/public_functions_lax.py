"""Rows of `public_functions.py`: jax.lax and jax.random."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from public_functions import from_table

A = "f32[256,256]"


def _conv(x, k):
    return lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def _pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _int8(x, y):
    return lax.dot_general(x, y, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)


def _rnn(x, w, h):
    return lax.scan(lambda h, x: ((h := jnp.tanh(h @ w + x)), h), h, x)


def _newton(x):
    return lax.while_loop(lambda c: jnp.max(jnp.abs(c * c - x)) > 1e-3, lambda c: 0.5 * (c + x / c), x + 1)


def _linear_recurrence(a, b):
    return lax.associative_scan(lambda p, q: (p[0] * q[0], p[1] * q[0] + q[1]), (a, b))


LAX = {
    "conv_2d": (_conv, "f32[1,32,32,8]", "f32[3,3,8,16]"),
    "conv_1d": (lambda x, k: lax.conv(x, k, (1,), "SAME"), "f32[4,16,128]", "f32[16,16,5]"),
    "conv_transpose": (lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), "f32[1,16,16,8]", "f32[3,3,8,8]"),
    "reduce_window_max": (_pool, "f32[4,32,32,16]"),
    "reduce": (lambda x: lax.reduce(x, 0.0, lax.add, (0,)), A),
    "reduce_argmin": (lambda x: lax.argmin(x, 1, jnp.int32), A),
    "scan_rnn": (_rnn, "f32[64,32]", "f32[32,32]", "f32[32]"),
    "scan_cumulative": (lambda x: lax.scan(lambda c, v: (c + v, c * v), 0.0, x), "f32[512]"),
    "scan_reverse": (lambda x: lax.scan(lambda c, v: (0.9 * c + v, c), x[0], x, reverse=True), "f32[64,64]"),
    "scan_unrolled": (lambda x: lax.scan(lambda c, v: (jnp.sin(c) + v, c), x[0], x, unroll=8), "f32[64,64]"),
    "while_loop": (_newton, "p:f32[1024]"),
    "fori_loop": (lambda x: lax.fori_loop(0, 50, lambda i, c: jnp.cos(c) + i, x), "f32[512]"),
    "fori_loop_matmul": (lambda x: lax.fori_loop(0, 8, lambda _, c: jnp.tanh(c @ x), x), "f32[64,64]"),
    "fori_loop_dynamic": (
        lambda n, x: lax.fori_loop(0, n[0] % 8 + 20, lambda _, c: jnp.sin(c), x), "i32[1]", "f32[512]",
    ),
    "cond": (lambda p, x: lax.cond(p[0] < 50, jnp.sin, jnp.cos, x), "i32[1]", "f32[8192]"),
    "switch": (lambda i, x: lax.switch(i[0] % 3, [jnp.sin, jnp.cos, jnp.tanh], x), "i32[1]", "f32[8192]"),
    "map": (lambda x: lax.map(lambda r: jnp.sort(r), x), "f32[64,64]"),
    "map_batched": (lambda x: lax.map(lambda r: jnp.tanh(r).sum(), x, batch_size=16), "f32[128,128]"),
    "associative_scan": (_linear_recurrence, "p:f32[1024]", "f32[1024]"),
    "cumlogsumexp": (lambda x: lax.cumlogsumexp(x, 1), "f32[16,64]"),
    "cummax": (lambda x: lax.cummax(x, 0), "f32[128,128]"),
    "top_k": (lambda x: lax.top_k(x, 8), "f32[64,256]"),
    "sort_two": (lambda k, v: lax.sort((k, v), num_keys=1), "f32[2048]", "i32[2048]"),
    "gather": (lambda x, i: x.at[i].get(mode="fill", fill_value=0), "f32[100,128]", "i32[256]"),
    "scatter_add": (lambda x, i, u: x.at[i].add(u, mode="drop"), "f32[100,64]", "i32[512]", "f32[512,64]"),
    "scatter_max": (lambda x, i, u: x.at[i].max(u), "f32[100]", "i32[4096]", "f32[4096]"),
    "dynamic_slice": (lambda x, i: lax.dynamic_slice(x, (i[0], 0), (128, 256)), A, "i32[1]"),
    "dynamic_update_slice": (lambda x, u, i: lax.dynamic_update_slice(x, u, (i[0], 0)), A, "f32[16,256]", "i32[1]"),
    "dot_general_batched": (lambda x, y: lax.batch_matmul(x, y), "f32[16,48,48]", "f32[16,48,48]"),
    "dot_general_bf16": (lax.dot, "bf16[128,128]", "bf16[128,128]"),
    "dot_general_int8": (_int8, "i8[128,128]", "i8[128,128]"),
    "population_count": (lax.population_count, "u32[256,256]"),
    "rsqrt": (lax.rsqrt, "p:f32[256,256]"),
    "erf_inv": (lax.erf_inv, "p:f32[128,128]"),
    "rev_pad": (lambda x: lax.pad(lax.rev(x, (1,)), 0.0, ((1, 1, 1), (2, 2, 0))), A),
    "bitcast": (lambda x: lax.bitcast_convert_type(x, jnp.int32) >> 3, A),
    "reduce_precision": (lambda x: lax.reduce_precision(x, 8, 7), A),
    "custom_linear_solve": (
        lambda a, b: jax.scipy.sparse.linalg.cg(a, b, maxiter=10)[0], "spd:f32[64,64]", "f32[64]",
    ),
}  # fmt: skip

RANDOM = {
    "normal": (lambda k: jax.random.normal(k, (128, 128)), "key"),
    "uniform": (lambda k: jax.random.uniform(k, (128, 128)), "key"),
    "bits": (lambda k: jax.random.bits(k, (16384,)), "key"),
    "bernoulli": (lambda k, p: jax.random.bernoulli(k, p), "key", "p:f32[128,128]"),
    "categorical": (lambda k, x: jax.random.categorical(k, x), "key", "f32[64,64]"),
    "permutation": (lambda k, x: jax.random.permutation(k, x), "key", "f32[1024]"),
    "choice": (lambda k, x: jax.random.choice(k, x, (256,)), "key", "f32[1024]"),
    "gamma": (lambda k, a: jax.random.gamma(k, a), "key", "p:f32[64]"),
    "beta": (lambda k: jax.random.beta(k, 2.0, 3.0, (64,)), "key"),
    "poisson": (lambda k: jax.random.poisson(k, 4.0, (256,)), "key"),
    "truncated_normal": (lambda k: jax.random.truncated_normal(k, -1, 1, (64, 128)), "key"),
    "split": (lambda k: jax.random.key_data(jax.random.split(k, 256)), "key"),
    "fold_in": (jax.vmap(jax.random.fold_in), "key[256]", "i32[256]"),
    "multivariate_normal": (
        lambda k, m, c: jax.random.multivariate_normal(k, m, c, (32,)), "key", "f32[16]", "spd:f32[16,16]",
    ),
}  # fmt: skip

ROWS = [*from_table("jax.lax", LAX), *from_table("jax.random", RANDOM)]
