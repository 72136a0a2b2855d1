"""Programs with the pitfall."""

import jax
import jax.numpy as jnp

A, B = "f32[256,32]", "f32[200,32]"


def distances(a=A, b=B):
    difference = a[:, None, :] - b[None, :, :]
    return jnp.sqrt((difference**2).sum(-1))  # expect: broadcast-matmul


def under_a_gradient(a=A, b=B):
    return jax.grad(lambda a: distances(a, b).sum())(a)


def norms(a=A, b=B):
    return jnp.linalg.norm(a[:, None] - b[None], axis=-1)  # expect: broadcast-matmul


def by_vmap(a=A, b=B):
    return jax.vmap(lambda u: jax.vmap(lambda v: jnp.sum((u - v) ** 2))(b))(a)  # expect: broadcast-matmul


def products_by_vmap(a=A, b=B):
    return jax.vmap(lambda u: jax.vmap(lambda v: jnp.sum(u * v))(b))(a)  # expect: broadcast-matmul


def mean(a=A, b=B):
    return jnp.mean(jnp.abs(a[:, None] - b) ** 2, axis=-1)  # expect: broadcast-matmul


def squared_by_hand(a=A, b=B):
    d = a[:, None] - b[None]
    return (d * d).sum(-1)  # expect: broadcast-matmul


def repeated(a=A, b=B):
    d = jnp.repeat(a[:, None], 200, 1) - jnp.tile(b[None], (256, 1, 1))
    return (d**2).sum(-1)  # expect: broadcast-matmul


def products(a=A, b=B):
    return jnp.sum(a[:, None] * b[None], -1)  # expect: broadcast-matmul


def weighted(a=A, b=B):
    return ((a[:, None] - b[None]) ** 2 / (1 + b**2)[None]).sum(-1)  # expect: broadcast-matmul


def scaled(a=A, b=B):
    return -0.5 * jnp.sum(jnp.square((jnp.expand_dims(a, 1) - b) / 0.3), axis=-1)  # expect: broadcast-matmul


def scaled_by_an_array(a=A, b=B):
    return (((a[:, None] - b[None]) * (1 + b[0] ** 2)) ** 2).sum(-1)  # expect: broadcast-matmul
