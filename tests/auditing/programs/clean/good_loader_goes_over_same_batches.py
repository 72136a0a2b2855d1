# runs
# A loader that goes over the same batches.
import jax, jax.numpy as jnp, numpy as np

batches = [b for b in np.random.default_rng(0).normal(size=(12, 256, 256)).astype("f4")]

@jax.jit
def step(w, x):
    return w - 1e-3 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w = jnp.ones((256, 64)) * 0.01
for epoch in range(8):
    for batch in batches:
        w = step(w, jax.device_put(batch))
    print(epoch, float(w.sum()))
