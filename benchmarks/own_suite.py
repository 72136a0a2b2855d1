"""The 25 benchmarks of `own_cost.py`: as a suite of a numerical library might be, from 1 µs to some 0.1 s a call.

This file imports benchax only where it makes cases, so that the sessions of other tools don't pay for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from benchax.case import Case


def mlp(layers: Any, x: Any) -> Any:
    for w, b in layers[:-1]:
        x = jax.nn.relu(x @ w + b)
    w, b = layers[-1]
    return x @ w + b


def loss(params: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ params["in"])
    return jnp.mean((hidden @ params["out"] - y) ** 2)


def attention(q: Any, k: Any, v: Any) -> Any:
    return jax.nn.softmax(q @ k.T / q.shape[-1] ** 0.5) @ v


def euler(x: Any) -> Any:
    return lax.scan(lambda state, _: (state + 0.01 * jnp.sin(state), state.sum()), x, None, length=100)


def newton(x: Any) -> Any:
    return lax.fori_loop(0, 20, lambda _, y: 0.5 * (y + x / y), jnp.ones_like(x))


def moments(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: {"mean": leaf.mean(), "std": leaf.std()}, tree)


LAYERS = (("f32[64,128]", "f32[128]"), ("f32[128,128]", "f32[128]"), ("f32[128,8]", "f32[8]"))
PARAMS = {"in": "f32[32,64]", "out": "f32[64,4]"}
TREE = {"a": "f32[1000]", "b": ["f32[64,64]", "f32[10]"], "c": {"d": "f32[32,32]"}}

SUITE: tuple[tuple[str, Any, tuple[Any, ...]], ...] = (
    ("increment", lambda x: x + 1, ("f32[]",)),
    ("sine", jnp.sin, ("f32[16]",)),
    ("dot", jnp.dot, ("f32[128]", "f32[128]")),
    ("axpy-100k", lambda x, y: 2.5 * x + y, ("f32[100000]", "f32[100000]")),
    ("axpy-1M", lambda x, y: 2.5 * x + y, ("f32[1000000]", "f32[1000000]")),
    ("gelu-100k", jax.nn.gelu, ("f32[100000]",)),
    ("softmax", jax.nn.softmax, ("f32[128,256]",)),
    ("matmul-16", jnp.matmul, ("f32[16,16]", "f32[16,16]")),
    ("matmul-64", jnp.matmul, ("f32[64,64]", "f32[64,64]")),
    ("matmul-256", jnp.matmul, ("f32[256,256]", "f32[256,256]")),
    ("matmul-512", jnp.matmul, ("f32[512,512]", "f32[512,512]")),
    ("matmul-1536", jnp.matmul, ("f32[1536,1536]", "f32[1536,1536]")),
    ("matvec", jnp.matmul, ("f32[1024,1024]", "f32[1024]")),
    ("mlp", mlp, (LAYERS, "f32[128,64]")),
    ("gradient", jax.value_and_grad(loss), (PARAMS, "f32[256,32]", "f32[256,4]")),
    ("attention", attention, ("f32[128,64]", "f32[128,64]", "f32[128,64]")),
    ("scan-100", euler, ("f32[64]",)),
    ("newton", newton, ("f32[1000]",)),
    ("cumsum", jnp.cumsum, ("f32[10000]",)),
    ("sort", jnp.sort, ("f32[10000]",)),
    ("take", lambda x, i: x[i], ("f32[10000]", "i32[1000]")),
    ("fft", jnp.fft.fft, ("c64[4096]",)),
    ("cholesky", lambda a: jnp.linalg.cholesky(a @ a.T + 64 * jnp.eye(64)), ("f32[64,64]",)),
    ("vmap", jax.vmap(lambda x, y: jnp.outer(x, y).sum()), ("f32[64,32]", "f32[64,32]")),
    ("moments", moments, (TREE,)),
)


LONG = ("axpy-1M", "matmul-512", "matmul-1536", "cholesky", "sort")
SMALL = tuple(each for each in SUITE if each[0] not in LONG)
"""The 20 of them that take a few µs to about 1 ms."""
_SPEC = re.compile(r"(f32|i32|c64)\[([\d,]*)\]")
_DTYPES = {"f32": np.float32, "i32": np.int32, "c64": np.complex64}


def arrays(args: Any) -> Any:
    """The same pytree with arrays in place of its specs."""
    return jax.tree.map(_array, args)


def _array(spec: str) -> jax.Array:
    found = _SPEC.fullmatch(spec)
    assert found, spec
    name, dims = found.groups()
    shape = [int(n) for n in dims.split(",") if n]
    return jnp.asarray(np.random.default_rng(0).uniform(0, 1, shape).astype(_DTYPES[name]))


def suite(chosen: int | None = None) -> list[Case]:
    """All, or about `chosen` of them, spread evenly."""
    from benchax.case import make_case

    step = 1 if chosen is None else max(1, len(SUITE) // chosen)
    return [make_case(fn, args, name=name) for name, fn, args in SUITE[::step]]
