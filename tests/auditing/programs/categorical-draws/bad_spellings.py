"""Programs with the pitfall."""

import jax
import jax.numpy as jnp

KEY = jax.random.PRNGKey(0)


def categorical_shape_n(k=KEY, logits="f32[600]"):
    return jax.random.categorical(k, logits, shape=(20000,))  # expect: categorical-draws


def vmap_over_keys(k=KEY, logits="f32[600]"):
    return jax.vmap(lambda k: jax.random.categorical(k, logits))(
        jax.random.split(k, 20000)
    )  # expect: categorical-draws


def argmax_l_gumbel(k=KEY, logits="f32[600]"):
    return jnp.argmax(logits + jax.random.gumbel(k, (20000, 600)), -1)  # expect: categorical-draws
