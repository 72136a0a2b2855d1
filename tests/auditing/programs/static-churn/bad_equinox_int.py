# runs
# The number of the step as a Python int for equinox.
import equinox as eqx
import jax, jax.numpy as jnp

model = eqx.nn.MLP(16, 16, 32, 1, key=jax.random.key(0))

@eqx.filter_jit
def step(model, x, temperature):
    def loss(model):
        return jnp.mean(jax.vmap(model)(x) ** 2) / temperature
    grads = eqx.filter_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, grads))

x = jnp.ones((32, 16))
for i in range(8):
    model = step(model, x, 1.0 + 0.1 * i)  # expect: static-churn
print(model(x[0]).sum())
