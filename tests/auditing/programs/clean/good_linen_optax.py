# runs
# Linen with optax.
import jax, jax.numpy as jnp, optax, functools
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(10)(x)

net = Net()
x, y = jax.random.normal(jax.random.key(0), (256, 64)), jnp.arange(256) % 10
params = net.init(jax.random.key(1), x, False)
rule = optax.adam(1e-3)
state = rule.init(params)

@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, x, y, key):
    def loss_of(p):
        logits = net.apply(p, x, True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

key = jax.random.key(2)
for i in range(80):
    params, state, loss = step(params, state, x, y, jax.random.fold_in(key, i))
    if i % 20 == 0:
        print(i, float(loss))
