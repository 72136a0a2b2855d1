# runs
# A safe logarithm.
import jax, jax.numpy as jnp

def entropy(w, x):
    p = jax.nn.relu(x @ w)
    p = p / (p.sum(-1, keepdims=True) + 1.0)
    safe = jnp.where(p > 0, p, 1.0)
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(safe), 0.0))

@jax.jit
def step(w, x):
    return w + 1e-3 * jax.grad(entropy)(w, x)

x = jax.random.normal(jax.random.key(0), (128, 64))
w = jax.random.normal(jax.random.key(1), (64, 32))
for i in range(100):
    w = step(w, x)
print(w.sum())
