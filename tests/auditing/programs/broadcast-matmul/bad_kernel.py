# runs
# A kernel of all pairs.
import jax, jax.numpy as jnp

def kernel(x, y, scale):
    difference = x[:, None] - y[None]
    return jnp.exp(-jnp.square(difference).sum(-1) / scale)  # expect: broadcast-matmul
@jax.jit
def evidence(scale, x, targets):
    gram = kernel(x, x, scale) + 0.1 * jnp.eye(len(x))
    factor = jax.scipy.linalg.cho_factor(gram)
    alpha = jax.scipy.linalg.cho_solve(factor, targets)
    return targets @ alpha

x = jax.random.normal(jax.random.key(0), (1024, 128))
targets = jnp.sin(x.sum(1))
for i in range(8):
    value = evidence(50.0 + i, x, targets)
print(value)
