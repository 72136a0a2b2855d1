"""Programs with the pitfall."""

import jax
import jax.numpy as jnp

S, V = "f32[64,4096]", "f32[65536]"


def largest(s=S):
    return jnp.sort(s)[:, -5:]  # expect: sort-top-k


def flipped(s=S):
    return jnp.flip(jnp.sort(s), -1)[:, :5]  # expect: sort-top-k


def taken(s=S):
    return jnp.take(jnp.sort(s), jnp.arange(5), axis=-1)  # expect: sort-top-k


def one_element(s=S):
    return jnp.sort(s)[:, -1]  # expect: sort-top-k


def along_columns(s=S):
    return jnp.sort(s.T, axis=0)[-5:]  # expect: sort-top-k


def negated(s=S):
    return -jnp.sort(-s)[:, :5]  # expect: sort-top-k


def threshold(v=V):
    return v >= jnp.sort(v)[-50]  # expect: sort-top-k


def indices(s=S):
    return jnp.take_along_axis(s, jnp.argsort(s)[:, -5:], 1)  # expect: sort-top-k


def both_ends(s=S):
    ordered = jnp.sort(s)  # expect: sort-top-k
    return ordered[:, -3:] - ordered[:, :2].sum()


def in_a_batch(s=S):
    return jax.vmap(lambda x: jnp.argsort(x)[-5:])(s)  # expect: sort-top-k


def in_a_loop(s=S):
    return jax.lax.map(lambda row: jnp.sort(row)[-5:], jnp.tile(s, (1, 8)))  # expect: sort-top-k
