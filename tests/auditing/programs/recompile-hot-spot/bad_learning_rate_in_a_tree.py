# runs
import jax
import jax.numpy as jnp


@jax.jit
def step(w, settings):
    return w * (1.0 if settings["rate"] is None else 0.5)


w = jnp.ones(3)
for i in range(8):
    w = step(w, {"rate": None, **({f"extra{i}": 1.0})})  # expect: recompile-hot-spot
