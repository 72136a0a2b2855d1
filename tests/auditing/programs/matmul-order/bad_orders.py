"""Programs with the pitfall."""

import jax
import jax.numpy as jnp

A, B, X = "f32[600,500]", "f32[500,400]", "f32[400,2]"


def left(a=A, b=B, x=X):
    return a @ b @ x  # expect: matmul-order


def scaled(a=A, b=B, x=X):
    return 0.5 * (a @ b) @ x  # expect: matmul-order


def dotted(a=A, b=B, x=X):
    return jnp.dot(jnp.dot(a, b), x)  # expect: matmul-order


def transposed_twice(a=A, b=B, x=X):
    return (a @ b).T.T @ x  # expect: matmul-order


def named(a=A, b=B, x=X):
    product = jnp.matmul(a, b)
    return product @ x  # expect: matmul-order


def rows(a=A, b=B, x=X):
    return jax.vmap(lambda row: row @ x)(a @ b)  # expect: matmul-order


def from_the_right(a=A, b=B, x=X):
    return (x.T @ (a @ b).T).T  # expect: matmul-order
