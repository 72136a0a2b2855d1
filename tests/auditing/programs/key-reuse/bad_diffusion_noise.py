# runs
# Noise of a diffusion sampler that is the same in each step.
import jax, jax.numpy as jnp

@jax.jit
def sample(key, x):
    def denoise(i, x):
        noise = jax.random.normal(key, x.shape)  # expect: key-reuse
        return 0.99 * x + 0.1 * jnp.tanh(x) + 0.05 * noise
    return jax.lax.fori_loop(0, 50, denoise, x)

key, first = jax.random.split(jax.random.key(0))
x = jax.random.normal(first, (64, 32))
for i in range(10):
    key, mine = jax.random.split(key)
    x = sample(mine, x)
print(x.std())
