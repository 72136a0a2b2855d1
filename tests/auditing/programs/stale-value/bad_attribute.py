# runs
import jax
import jax.numpy as jnp


class Sampler:
    def __init__(self):
        self.temperature = 1.0
        self.step = jax.jit(self._step)

    def _step(self, x):
        return x * self.temperature  # expect: stale-value


sampler = Sampler()
x = jnp.ones(3)
for i in range(8):
    x = sampler.step(x)
    sampler.temperature *= 0.9
