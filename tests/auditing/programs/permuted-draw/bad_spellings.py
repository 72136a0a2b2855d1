"""Programs with the pitfall."""

import jax
import numpy as np

V = np.ones(1 << 16, np.float32)
KEY = jax.random.PRNGKey(0)


def permutation_n_k(k=KEY):
    return jax.random.permutation(k, 100000)[:64]  # expect: permuted-draw


def choice_no_replace(k=KEY):
    return jax.random.choice(k, 100000, (64,), replace=False)  # expect: permuted-draw


def permutation_x_k(k=KEY, v=V):
    return jax.random.permutation(k, v)[:64]  # expect: permuted-draw


def x_permutation_k(k=KEY, v=V):
    return v[jax.random.permutation(k, 1 << 16)[:64]]  # expect: permuted-draw
