"""Rows of `public_functions.py`: functions that change what they are given. `pure` is the same work with the state as
argument and output, which is what has to be timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from public_functions import Call, PublicFunction, make_input, require

X, Y = "f32[32,64]", "f32[32,16]"


def _mlp(nnx: Any) -> Any:
    class Mlp(nnx.Module):
        def __init__(self, rngs: Any) -> None:
            self.inner, self.norm = nnx.Linear(64, 128, rngs=rngs), nnx.BatchNorm(128, rngs=rngs)
            self.dropout, self.outer = nnx.Dropout(0.1, rngs=rngs), nnx.Linear(128, 16, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.outer(self.dropout(jax.nn.relu(self.norm(self.inner(x)))))

    return Mlp(nnx.Rngs(0))


def _train(nnx: Any) -> Callable[..., Any]:
    def train(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
        value, gradient = nnx.value_and_grad(lambda model: jnp.mean((model(x) - y) ** 2))(model)
        optimizer.update(model, gradient)
        return value

    return train


def _objects(nnx: Any) -> tuple[Any, Any, Any, Any]:
    import optax

    model = _mlp(nnx)
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    return model, optimizer, make_input(X, "nnx"), make_input(Y, "nnx")


def _nnx_step() -> Call:
    require("flax")
    require("optax")
    from flax import nnx

    return nnx.jit(_train(nnx)), _objects(nnx), {}


def _nnx_step_pure() -> Call:
    require("flax")
    require("optax")
    from flax import nnx

    model, optimizer, x, y = _objects(nnx)
    train = _train(nnx)
    graph, state = nnx.split((model, optimizer))

    def pure(state: Any, x: Any, y: Any) -> Any:
        model, optimizer = nnx.merge(graph, state)
        value = train(model, optimizer, x, y)
        return value, nnx.state((model, optimizer))

    return pure, (state, x, y), {}


def _nnx_forward(jit: bool) -> Callable[[], Call]:
    def make() -> Call:
        require("flax")
        from flax import nnx

        def forward(model: Any, x: Any) -> Any:  # batch statistics and dropout's counter change
            return model(x)

        return (nnx.jit(forward) if jit else forward), (_mlp(nnx), make_input(X, "nnx")), {}

    return make


def _nnx_forward_pure() -> Call:
    require("flax")
    from flax import nnx

    graph, state = nnx.split(_mlp(nnx))

    def pure(state: Any, x: Any) -> Any:
        model = nnx.merge(graph, state)
        return model(x), nnx.state(model)

    return pure, (state, make_input(X, "nnx")), {}


def _ref_row(name: str, change: Callable[..., Any], *texts: str) -> PublicFunction:
    """`change(ref, *inputs)` writes into the Ref and returns what it returns."""

    def arrays() -> list[Any]:
        return [make_input(text, f"{name} {i}") for i, text in enumerate(texts)]

    def make() -> Call:
        first, *others = arrays()
        return jax.jit(change), (jax.new_ref(first), *others), {}

    def pure() -> Call:
        def run(first: Any, *others: Any) -> Any:
            ref = jax.new_ref(first)
            out = change(ref, *others)
            return out, ref[...]

        return run, tuple(arrays()), {}

    return PublicFunction(name, "state", make, pure=pure)


def _accumulate(ref: Any, x: Any) -> Any:
    ref[...] += jnp.sin(x)


def _count(ref: Any, x: Any) -> Any:
    ref[0] += 1
    return jnp.tanh(x)


def _running_mean(ref: Any, x: Any) -> Any:
    ref[...] = 0.9 * ref[...] + 0.1 * jnp.mean(x, 0)
    return x - ref[...]


def _scan_into(ref: Any, x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        ref[...] = ref[...] * 0.5 + row
        return carry + jnp.sum(row), None

    return jax.lax.scan(step, 0.0, x)[0]


ROWS = [
    PublicFunction("nnx_training_step", "state", _nnx_step, pure=_nnx_step_pure),
    PublicFunction("nnx_forward_batch_norm", "state", _nnx_forward(True), pure=_nnx_forward_pure),
    PublicFunction("nnx_forward_not_jitted", "state", _nnx_forward(False), pure=_nnx_forward_pure),
    _ref_row("ref_accumulate", _accumulate, "f32[16384]", "f32[16384]"),
    _ref_row("ref_counter", _count, "i32[1]", "f32[16384]"),
    _ref_row("ref_running_mean", _running_mean, "f32[128]", "f32[256,128]"),
    _ref_row("ref_in_scan", _scan_into, "f32[128]", "f32[64,128]"),
]
