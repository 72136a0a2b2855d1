# runs
import jax
import jax.numpy as jnp


@jax.jit
def step(w, settings):
    for _ in range(10):
        w = jnp.tanh(w @ w) * (1.0 if settings["rate"] is None else 0.5)
    return w


w = jnp.eye(3)
for i in range(12):
    w = step(w, {"rate": None, **({f"extra{i}": 1.0})})  # expect: recompile-hot-spot
