# runs
# Noise of NumPy in a jitted step.
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x):
    noisy = x + 0.1 * np.random.normal(size=x.shape).astype(np.float32)  # expect: impure-function
    loss, g = jax.value_and_grad(lambda w: jnp.mean((noisy @ w - x) ** 2))(w)
    return w - 0.1 * g, loss

w, x = jnp.eye(32), jax.random.normal(jax.random.key(0), (128, 32))
for i in range(100):
    w, loss = step(w, x)
print(loss)
