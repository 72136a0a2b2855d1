# runs
# A grid in float64 because 64 bits are on.
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
import numpy as np

@jax.jit
def smooth(field):
    grid = jnp.linspace(0.0, 1.0, field.shape[-1])  # expect: float64-promotion
    window = jnp.exp(-((grid[:, None] - grid[None, :]) ** 2) / 0.01)
    window = window / window.sum(1, keepdims=True)
    return jnp.tanh(field @ window)

field = jnp.asarray(np.random.default_rng(0).random((512, 512), np.float32))
for _ in range(40):
    out = smooth(field)
print(out.mean())
