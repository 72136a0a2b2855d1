"""Programs with the pitfall."""

import jax.numpy as jnp
import numpy as np

OFF = 1e4 + np.random.default_rng(0).normal(size=100_000).astype(np.float32)


def mean_x_2_mean_x_2(v=OFF):
    return jnp.mean(v**2) - jnp.mean(v) ** 2  # expect: cancelling-variance


def sqrt_mean_x_x_square_mean(v=OFF):
    return jnp.sqrt(jnp.mean(v * v) - jnp.square(jnp.mean(v)))  # expect: cancelling-variance


def s2_n_s1_n_2(v=OFF):
    return jnp.sum(v**2) / v.size - (jnp.sum(v) / v.size) ** 2  # expect: cancelling-variance


def s2_s1_2_n_n(v=OFF):
    return (jnp.sum(v**2) - jnp.sum(v) ** 2 / v.size) / v.size  # expect: cancelling-variance


def m_2_mean_x_2(v=OFF):
    return -(jnp.mean(v) ** 2) + jnp.mean(v**2)  # expect: cancelling-variance


def power_by_2_0(v=OFF):
    return jnp.mean(v**2.0) - jnp.mean(v) ** 2.0  # expect: cancelling-variance


def m_mean_m2_m_m(v=OFF):
    return (lambda m: jnp.mean(v * v) - m * m)(v.mean())  # expect: cancelling-variance
