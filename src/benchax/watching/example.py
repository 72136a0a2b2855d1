"""The program of `benchax demo watch`: one loop, jitted in three ways, from JAX's page on jit compilation.

Run from its text, so that its lines are a user's lines.
"""

from functools import partial
from typing import Any

import jax


def body(i: Any) -> Any:
    return i + 1


def partials(x: Any, n: int) -> Any:
    i = 0
    while i < n:
        i = jax.jit(partial(body))(i)
    return x + i


def lambdas(x: Any, n: int) -> Any:
    i = 0
    while i < n:
        i = jax.jit(lambda i: body(i))(i)
    return x + i


def normal(x: Any, n: int) -> Any:
    i = 0
    while i < n:
        i = jax.jit(body)(i)
    return x + i


LOOPS = {"jax.jit(partial(body))": partials, "jax.jit(lambda i: body(i))": lambdas, "jax.jit(body)": normal}
