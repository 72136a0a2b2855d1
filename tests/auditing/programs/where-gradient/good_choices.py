"""Programs without the pitfall."""

import jax
import jax.numpy as jnp

X = "f32[8]"


def safe(x=X):
    return jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0).sum())(x)


def in_pieces(x=X):
    return jax.grad(lambda x: jnp.piecewise(x, [x < -1, x > 0], [1.0, jnp.log, 0.0]).sum())(x)


def finite(x=X):
    return jax.grad(lambda x: jnp.where(x > 0, jnp.sin(x), x / 2).sum())(x)


def of_jax(x=X):
    return jax.grad(lambda x: (jax.nn.gelu(x) + jax.nn.softplus(x) + jax.nn.elu(x) + jnp.sinc(x)).sum())(x)


def more_of_jax(x=X):
    return jax.grad(lambda x: jax.nn.logsumexp(x) + jnp.std(x) + jnp.logaddexp(x, 2 * x).sum())(x)


def by_position(x=X):
    return jax.grad(lambda x: jnp.where(jnp.arange(8) > 3, jnp.sqrt(x), 0.0).sum())(x)


def not_differentiated(x=X):
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


def _bateman(rates, t):
    taken, lost = rates
    lag = jnp.where(t > 0, t, 0.0)
    return jnp.where(t > 0, taken / (taken - lost) * (jnp.exp(-lost * lag) - jnp.exp(-taken * lag)), 0.0).sum()


def of_inputs_that_are_alike(rates=("f32[]", "f32[]"), t=X):
    return jax.grad(_bateman)(rates, t)


def _cut_off(w, points):
    r = jnp.linalg.norm(points, axis=-1)
    inside = jnp.where(r < 1, 1 - w * r, 1.0)
    return jnp.where(r < 1, jnp.exp(inside), 0.0).sum()


def of_data(w="f32[]", points="f32[8,3]"):
    return jax.grad(_cut_off)(w, points)
