"""Programs without the pitfall."""

import jax
import jax.numpy as jnp

A, B, X = "f32[600,500]", "f32[500,400]", "f32[400,2]"


def cheaper(a=A, b=B, x=X):
    return a @ (b @ x)


def needed(a=A, b=B, x=X):
    product = a @ b
    return product @ x, product.sum()


def wide(a=A, b=B, x="f32[400,400]"):
    return a @ b @ x


def changed_between(a=A, b=B, x=X):
    return jnp.tanh(a @ b) @ x


def once_before_a_loop(a=A, b=B, x=X):
    product = a @ b
    return jax.lax.fori_loop(0, 9, lambda i, y: product.T @ (product @ y), x)
