# runs
# A table of positions in the body of a module.
import jax, jax.numpy as jnp, numpy as np, optax
import flax.linen as nn

def sinusoids(length, dim):
    angles = np.arange(length)[:, None] / 10000 ** (np.arange(dim)[None] / dim)
    return np.sin(angles).astype(np.float32)

TABLE = sinusoids(8192, 512)

class Encoder(nn.Module):
    @nn.compact
    def __call__(self, x, at):
        x = nn.Dense(512)(x) + jnp.asarray(TABLE)[at]
        return nn.Dense(1)(nn.gelu(x))

net = Encoder()
x = jax.random.normal(jax.random.key(0), (64, 32))
at = jax.random.randint(jax.random.key(1), (64,), 0, 8192)
params = net.init(jax.random.key(2), x, at)
rule = optax.sgd(1e-2)
state = rule.init(params)

@jax.jit
def step(params, state, x, at):  # expect: captured-constants
    grads = jax.grad(lambda p: jnp.mean(net.apply(p, x, at) ** 2))(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state

for _ in range(10):
    params, state = step(params, state, x, at)
print(jax.tree.leaves(params)[0].sum())
