# runs
# Padded sequences in buckets.
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x, mask):
    def loss_of(w):
        return jnp.sum(mask * (jnp.tanh(x @ w)[..., 0] - 1) ** 2) / mask.sum()
    return w - 0.1 * jax.grad(loss_of)(w)

rng = np.random.default_rng(0)
w = jnp.zeros((16, 1))
for i in range(120):
    length = int(rng.integers(5, 64))
    padded = 32 if length <= 32 else 64
    x = np.zeros((8, padded, 16), np.float32)
    x[:, :length] = rng.standard_normal((8, length, 16), np.float32)
    mask = np.broadcast_to((np.arange(padded) < length).astype(np.float32), (8, padded))
    w = step(w, *jax.device_put((x, mask.copy())))
print(w.sum())
