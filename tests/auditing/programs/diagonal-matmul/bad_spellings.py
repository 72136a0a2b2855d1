"""Programs with the pitfall."""

import jax.numpy as jnp
import numpy as np

M = np.random.default_rng(0).normal(size=(400, 400)).astype(np.float32)
W = np.ones(600, np.float32)


def diag_a_b(m=M):
    return jnp.diag(m @ m)  # expect: diagonal-matmul


def trace_a_b(m=M):
    return jnp.trace(m @ m)  # expect: diagonal-matmul


def diag_w_a(m="f32[600,600]", w=W):
    return jnp.diag(w) @ m  # expect: diagonal-matmul


def a_diag_w_b(m="f32[600,600]", w=W):
    return m @ jnp.diag(w) @ m  # expect: diagonal-matmul


def a_b_i_i(m=M):
    return (m @ m)[jnp.arange(400), jnp.arange(400)]  # expect: diagonal-matmul


def einsum_ii_i(m=M):
    return jnp.einsum("ii->i", m @ m)  # expect: diagonal-matmul


def eye_w_a(m="f32[600,600]", w=W):
    return jnp.eye(600) * w @ m  # expect: diagonal-matmul


def sum_a_b_eye(m=M):
    return jnp.sum(m @ m * jnp.eye(400))  # expect: diagonal-matmul
