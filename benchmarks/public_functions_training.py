"""Rows of `public_functions.py`: transformations of small networks, and whole training steps with optax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from public_functions import Call, PublicFunction, from_table, make_input, require

X, Y = "f32[64,32]", "f32[64,8]"
W1, B1, W2 = "f32[32,64]", "f32[64]", "f32[64,8]"


def net(w1: Any, b1: Any, w2: Any, x: Any) -> Any:
    return jnp.tanh(x @ w1 + b1) @ w2


def loss(w1: Any, b1: Any, w2: Any, x: Any, y: Any) -> Any:
    return jnp.mean((net(w1, b1, w2, x) - y) ** 2)


def _checkpointed(w1, b1, w2, x, y):
    return jax.grad(lambda *w: jnp.mean((jax.checkpoint(net)(*w, x) - y) ** 2), argnums=(0, 1, 2))(w1, b1, w2)


def _hvp(x, v):
    return jax.jvp(jax.grad(lambda x: jnp.sum(jnp.sin(x) * jnp.roll(x, 1) ** 2)), (x,), (v,))[1]


@jax.custom_vjp
def _clipped(x):
    return jnp.sin(x)


_clipped.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (jnp.clip(g * jnp.cos(x), -1, 1),))


def _scan_gradient(x, w, h):
    return jax.grad(lambda w: jax.lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, x)[0].sum())(w)


def _meta(w1, b1, w2, x, y):
    inner = w1 - 0.1 * jax.grad(loss)(w1, b1, w2, x, y)
    return loss(inner, b1, w2, x, y)


TRANSFORMATIONS = {
    "grad_mlp": (jax.grad(loss, argnums=(0, 1, 2)), W1, B1, W2, X, Y),
    "value_and_grad_mlp": (jax.value_and_grad(loss, argnums=(0, 1, 2)), W1, B1, W2, X, Y),
    "vmap_grad_mlp": (jax.vmap(jax.grad(loss), (None, None, None, 0, 0)), W1, B1, W2, "f32[8,16,32]", "f32[8,16,8]"),
    "checkpoint_mlp": (_checkpointed, W1, B1, W2, X, Y),
    "jvp_mlp": (lambda w1, b1, w2, x, v: jax.jvp(lambda x: net(w1, b1, w2, x), (x,), (v,)), W1, B1, W2, X, X),
    "hessian": (jax.hessian(lambda x: jnp.sum(jnp.sin(x) * jnp.roll(x, 1))), "f32[24]"),
    "hessian_vector_product": (_hvp, "f32[4096]", "f32[4096]"),
    "jacrev": (jax.jacrev(lambda x: jnp.tanh(x) * jnp.sum(x)), "f32[48]"),
    "jacfwd": (jax.jacfwd(lambda x: jnp.tanh(x) * jnp.sum(x)), "f32[48]"),
    "custom_vjp": (jax.grad(lambda x: _clipped(x).sum()), "f32[8192]"),
    "grad_of_scan": (_scan_gradient, "f32[32,32]", "f32[32,32]", "f32[32]"),
    "grad_of_grad": (jax.grad(_meta), W1, B1, W2, X, Y),
}

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda optax: optax.sgd(1e-2, momentum=0.9),
    "adam": lambda optax: optax.adam(1e-3),
    "adamw": lambda optax: optax.adamw(1e-3),
    "lamb": lambda optax: optax.lamb(1e-3),
    "lion": lambda optax: optax.lion(1e-4),
    "adafactor": lambda optax: optax.adafactor(1e-3),
    "rmsprop": lambda optax: optax.rmsprop(1e-3),
    "adagrad": lambda optax: optax.adagrad(1e-2),
    "clipped_adam": lambda optax: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
    "scheduled_sgd": lambda optax: optax.sgd(optax.cosine_decay_schedule(0.1, 1000)),
}


def _weights(seed: str) -> tuple[Any, ...]:
    return tuple(0.1 * make_input(text, f"{seed} {i}") for i, text in enumerate((W1, B1, W2)))


def _update(name: str) -> PublicFunction:
    """The optimizer alone: new weights and state from a gradient."""

    def make() -> Call:
        require("optax")
        import optax

        optimizer, weights = OPTIMIZERS[name](optax), _weights(name)

        def update(weights: Any, state: Any, gradient: Any) -> Any:
            updates, state = optimizer.update(gradient, state, weights)
            return optax.apply_updates(weights, updates), state

        return update, (weights, optimizer.init(weights), _weights(name + " gradient")), {}

    return PublicFunction(f"{name}_update", "optax", make)


def _step(name: str) -> PublicFunction:
    """A whole training step: loss, gradient, update; the state is an argument and an output."""

    def make() -> Call:
        require("optax")
        import optax

        optimizer, weights = OPTIMIZERS[name](optax), _weights(name)

        def step(weights: Any, state: Any, x: Any, y: Any) -> Any:
            value, gradient = jax.value_and_grad(lambda w: loss(*w, x, y))(weights)
            updates, state = optimizer.update(gradient, state, weights)
            return optax.apply_updates(weights, updates), state, value

        return step, (weights, optimizer.init(weights), make_input(X, name), make_input(Y, name)), {}

    return PublicFunction(f"{name}_training_step", "optax", make)


ROWS = [
    *from_table("jax", TRANSFORMATIONS),
    *[_update(name) for name in OPTIMIZERS],
    *[_step(name) for name in ("sgd", "adam", "adamw", "clipped_adam")],
]
