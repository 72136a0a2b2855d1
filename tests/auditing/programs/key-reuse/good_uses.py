"""Programs without the pitfall."""

import jax
import jax.numpy as jnp

KEY = jax.random.PRNGKey(0)


def split(key=KEY):
    one, other = jax.random.split(key)
    return jax.random.normal(one) + jax.random.uniform(other)


def different_numbers(key=KEY):
    return jax.random.normal(jax.random.fold_in(key, 1)) + jax.random.normal(jax.random.fold_in(key, 2))


def of_each_iteration(key=KEY):
    return jax.lax.fori_loop(0, 4, lambda i, total: total + jax.random.normal(jax.random.fold_in(key, i)), 0.0)


def carried(key=KEY):
    def step(key, _):
        key, use = jax.random.split(key)
        return key, jax.random.normal(use)

    return jax.lax.scan(step, key, None, length=3)[1]


def in_one_branch_of_two(key=KEY, x=1.0):
    return jax.lax.cond(x > 0, lambda: jax.random.normal(key), lambda: jax.random.uniform(key))


def computed_again(key=KEY, x="f32[8]"):
    return jax.grad(lambda x: jax.checkpoint(lambda x: jnp.sum(x * jax.random.normal(key, (8,))))(x))(x)


def keys_of_rows(key=KEY, x="f32[4]"):
    return jax.vmap(lambda x, key: x + jax.random.normal(key))(x, jax.random.split(key, 4))
