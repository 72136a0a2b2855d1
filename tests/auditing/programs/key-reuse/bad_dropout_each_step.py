# runs
# Dropout with the same key at every step.
import jax, jax.numpy as jnp, optax
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.Dropout(0.5, deterministic=False)(x)
        return nn.Dense(1)(x)

net, dropout = Net(), jax.random.PRNGKey(1)
x = jax.random.normal(jax.random.PRNGKey(2), (64, 32))
params = net.init({"params": jax.random.PRNGKey(0), "dropout": dropout}, x)
rule = optax.sgd(1e-2)
state = rule.init(params)

@jax.jit
def step(params, state, x, key):
    grads = jax.grad(lambda p: (net.apply(p, x, rngs={"dropout": key}) ** 2).mean())(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state

for i in range(40):
    params, state = step(params, state, x, dropout)  # expect: key-reuse
print(jax.tree.leaves(params)[0].sum())
