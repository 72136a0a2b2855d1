import jax
import jax.numpy as jnp

PLACES = jnp.arange(12.0).reshape(6, 2)


def _distance(difference):
    squared = jnp.sum(difference**2, axis=-1)
    is_apart = squared > 0
    return jnp.where(is_apart, jnp.sqrt(jnp.where(is_apart, squared, 0)), 0)


def _energy(places, scale):
    ratio = scale / _distance(places[:, None] - places[None])
    return jnp.sum(jnp.nan_to_num(ratio**12 - ratio**6, posinf=0.0, neginf=0.0))


def forces(places=PLACES, scale=1.0):
    return -jax.grad(_energy)(places, scale)
