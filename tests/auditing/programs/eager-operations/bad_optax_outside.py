# runs
# Optax outside of the jitted gradient.
import jax, jax.numpy as jnp, optax

rule = optax.adam(1e-3)

@jax.jit
def gradients(params, x):
    def loss(params):
        h = x
        for w in params:
            h = jnp.tanh(h @ w)
        return (h**2).mean()
    return jax.value_and_grad(loss)(params)

params = [jnp.eye(64) for _ in range(4)]
state = rule.init(params)
x = jnp.ones((32, 64))
for i in range(30):
    loss, grads = gradients(params, x)
    updates, state = rule.update(grads, state)  # expect: eager-operations
    params = optax.apply_updates(params, updates)
print(loss)
