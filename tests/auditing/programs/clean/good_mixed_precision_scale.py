# runs
# Mixed precision with a scale.
import jax, jax.numpy as jnp, optax
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(64, dtype=jnp.bfloat16)(x)
        x = nn.gelu(x)
        return nn.Dense(8, dtype=jnp.float32)(x)

net = Net()
x = jax.random.normal(jax.random.key(0), (64, 32), jnp.bfloat16)
y = jnp.arange(64) % 8
params = net.init(jax.random.key(1), x)
rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, 60)))
state = rule.init(params)

@jax.jit
def step(params, state, x, y):
    def loss_of(p):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

for i in range(60):
    params, state, loss = step(params, state, x, y)
print(loss)
