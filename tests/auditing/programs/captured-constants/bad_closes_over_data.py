# runs
# A data set that the step closes over.
import jax, jax.numpy as jnp, numpy as np

rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(60000, 196)).astype("f4"))

@jax.jit
def step(w, rows):  # expect: captured-constants
    x = images[rows]
    return w - 1e-2 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w = jnp.ones((196, 10)) * 0.1
for i in range(40):
    w = step(w, jnp.asarray(rng.integers(0, 60000, 128)))
print(w.sum())
