# runs
# A stop watch that waits for each step.
import contextlib, time
import jax, jax.numpy as jnp, numpy as np

times = {}

@contextlib.contextmanager
def measured(name):
    began = time.monotonic()
    yield
    times[name] = times.get(name, 0) + time.monotonic() - began

@jax.jit
def step(w, x):
    return w - 1e-3 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x) ** 2))(w)

rng = np.random.default_rng(0)
w = jnp.eye(512)
for i in range(80):
    with measured("data"):
        x = jax.device_put(rng.standard_normal((256, 512), np.float32))
    with measured("step"):
        w = step(w, x)
        jax.block_until_ready(w)  # expect: wait-per-step
print(times, w.sum())
