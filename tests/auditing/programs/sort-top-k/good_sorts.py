"""Programs without the pitfall."""

import jax
import jax.numpy as jnp

S = "f32[64,4096]"


def selected(s=S):
    return jax.lax.top_k(s, 5)


def all_of_it(s=S):
    return jnp.sort(s)


def the_middle(s=S):
    return jnp.sort(s)[:, 2048:2049], jnp.median(s)


def half(s=S):
    return jnp.sort(s)[:, -2048:]


def read_again(s=S):
    ordered = jnp.sort(s)
    return ordered[:, -5:] / ordered.sum()


def small(s="f32[2,100]"):
    return jnp.argsort(s)[:, -5:]


def of_bf16(s="bf16[64,4096]"):
    return jnp.argsort(s)[:, -5:]
