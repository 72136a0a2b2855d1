# runs
# A running mean that begins as a Python number.
import jax, jax.numpy as jnp, optax

rule = optax.adamw(1e-3)

def loss_of(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean()

@jax.jit
def step(params, state, mean, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, 0.9 * mean + 0.1 * loss

params = [jnp.eye(64) for _ in range(12)]
state, mean = rule.init(params), 0.0
x = jnp.ones((32, 64))
for i in range(40):
    params, state, mean = step(params, state, mean, x)  # expect: compiled-twice
print(mean)
