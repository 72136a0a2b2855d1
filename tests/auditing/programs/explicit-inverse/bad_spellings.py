"""Programs with the pitfall."""

import jax.numpy as jnp
import numpy as np

M = np.random.default_rng(0).normal(size=(400, 400)).astype(np.float32)
Y = np.ones((400, 1), np.float32)


def inv_a_b(m=M, y=Y):
    return jnp.linalg.inv(m) @ y  # expect: explicit-inverse


def einsum_inv_b(m=M, y=Y):
    return jnp.einsum("ij,j->i", jnp.linalg.inv(m), y[:, 0])  # expect: explicit-inverse


def b_t_inv_b(m=M, y=Y):
    return y.T @ jnp.linalg.inv(m) @ y  # expect: explicit-inverse


def inv_a_eps_i_b(m=M, y=Y):
    return jnp.linalg.inv(m + 0.001 * jnp.eye(400)) @ y  # expect: explicit-inverse


def solve_a_i_b(m=M, y=Y):
    return jnp.linalg.solve(m, jnp.eye(400)) @ y  # expect: explicit-inverse


def inv_a_2_b(m=M, y=Y):
    return jnp.linalg.inv(m) * 2.0 @ y  # expect: explicit-inverse
