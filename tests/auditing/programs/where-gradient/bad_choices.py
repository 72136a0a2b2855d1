"""Programs with the pitfall."""

import jax
import jax.numpy as jnp

X = "f32[8]"


def root(x=X):
    return jax.grad(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0).sum())(x)  # expect: where-gradient


def entropy(x=X):
    return jax.grad(lambda p: jnp.where(p > 0, p * jnp.log(p), 0.0).sum())(x)  # expect: where-gradient


def ratio(x=X):
    return jax.grad(lambda x: jnp.where(x == 0, 1.0, jnp.sin(x) / x).sum())(x)  # expect: where-gradient


def by_select(x=X):
    return jax.grad(lambda x: jax.lax.select(x > 0, jnp.sqrt(x), x * 0).sum())(x)  # expect: where-gradient


def by_select_of_several(x=X):
    return jax.grad(lambda x: jnp.select([x < -1, x > 0], [x, jnp.sqrt(x)], 0.0).sum())(x)  # expect: where-gradient


def _inverse_norm(x):
    r = jnp.sqrt(jnp.sum(x**2))  # expect: where-gradient
    return jnp.where(r > 0, 1 / r, 0.0)


def guarded_norm(x=X):
    return jax.grad(_inverse_norm)(x)


def nan_to_num(x=X):
    return jax.grad(lambda x: jnp.nan_to_num(jnp.log(x)).sum())(x)  # expect: where-gradient


def by_a_mask(x=X):
    return jax.grad(lambda x: jnp.where(x > 0, 1.0, 0.0) @ jnp.sqrt(x))(x)  # expect: where-gradient


def in_a_scan(x=X):
    def add(total, x):
        return total + jnp.where(x > 0, jnp.sqrt(x), 0.0), None  # expect: where-gradient

    return jax.grad(lambda x: jax.lax.scan(add, 0.0, x)[0])(x)


def power(x=X):
    return jax.grad(lambda x: jnp.where(x > 0, x**0.5, 0.0).sum())(x)  # expect: where-gradient


def _well(x):
    r = jnp.sqrt(x)  # expect: where-gradient
    return jnp.where(x > 0, (1 - jnp.exp(-r)) ** 2, 0.0).sum()


def at_the_first_operation(x=X):
    return jax.grad(_well)(x)
