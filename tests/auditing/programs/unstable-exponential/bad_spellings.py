"""Programs with the pitfall."""

import jax
import jax.numpy as jnp
import numpy as np

BIG = 200 * np.random.default_rng(0).normal(size=1000).astype(np.float32)


def log_sum_exp(v=BIG):
    return jnp.log(jnp.sum(jnp.exp(v)))  # expect: unstable-exponential


def log_mean_exp(v=BIG):
    return jnp.log(jnp.mean(jnp.exp(v)))  # expect: unstable-exponential


def log_1_exp(v=BIG):
    return jnp.log(1 + jnp.exp(v))  # expect: unstable-exponential


def bce_log_1_sigmoid(v=BIG):
    return jnp.log(1 - jax.nn.sigmoid(v))  # expect: unstable-exponential


def log_softmax(v=BIG):
    return jnp.log(jax.nn.softmax(v))  # expect: unstable-exponential


def exp_exp_sum(v=BIG):
    return jnp.exp(v) / jnp.exp(v).sum()  # expect: unstable-exponential
