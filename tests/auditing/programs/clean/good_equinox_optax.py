# runs
# Equinox with optax.
import equinox as eqx
import jax, jax.numpy as jnp, optax

model = eqx.nn.MLP(32, 4, 64, 3, key=jax.random.key(0))
rule = optax.adamw(1e-3)
state = rule.init(eqx.filter(model, eqx.is_array))

@eqx.filter_jit
def step(model, state, x, y):
    loss, grads = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))(model)
    updates, state = rule.update(grads, state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state, loss

x = jax.random.normal(jax.random.key(1), (128, 32))
y = x[:, :4]
for i in range(60):
    model, state, loss = step(model, state, x, y)
print(loss)
