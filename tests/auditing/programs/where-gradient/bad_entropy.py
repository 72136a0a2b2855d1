# runs
# An entropy whose gradient is NaN at zero.
import equinox as eqx
import jax, jax.numpy as jnp

model = eqx.nn.Linear(16, 8, key=jax.random.key(0))

@eqx.filter_value_and_grad
def entropy(model, x):
    p = jax.nn.relu(jax.vmap(model)(x))
    p = p / (p.sum(-1, keepdims=True) + 1.0)
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0.0))  # expect: where-gradient
@eqx.filter_jit
def step(model, x):
    value, grads = entropy(model, x)
    return value, eqx.apply_updates(model, jax.tree.map(lambda g: 1e-2 * g, grads))

x = jax.random.normal(jax.random.key(1), (32, 16))
for i in range(20):
    value, model = step(model, x)
print(value)
