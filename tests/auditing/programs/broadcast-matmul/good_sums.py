"""Programs without the pitfall."""

import jax.numpy as jnp

A, B = "f32[256,32]", "f32[200,32]"


def product(a=A, b=B):
    return a @ b.T


def few_coordinates(a="f32[800,3]", b="f32[800,3]"):
    return ((a[:, None] - b[None]) ** 2).sum(-1)


def over_rows(a=A, b=B):
    return ((a[:, None] - b[None]) ** 2).sum(0)


def in_place(a="f32[2048,1024]", b="f32[2048,1024]"):
    return (a * b).sum(-1)


def with_one_row(a="f32[2048,1024]", b="f32[8,1024]"):
    return (a * b[0]).sum(-1)


def absolute(a=A, b=B):
    return jnp.abs(a[:, None] - b[None]).sum(-1)


def weighted_by_pairs(a=A, b=B):
    d = a[:, None] - b[None]
    return ((d / (1 + jnp.abs(d))) ** 2).sum(-1), (d**2 / (1 + jnp.abs(d))).sum(-1)
