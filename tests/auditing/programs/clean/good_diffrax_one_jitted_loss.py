# runs
# needs: diffrax
# Diffrax in one jitted loss.
import diffrax, equinox as eqx, jax, jax.numpy as jnp, optax

class Field(eqx.Module):
    net: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.net(y)

def solve(field, y0):
    found = diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.1, y0,
                                saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 5)))
    return found.ys

field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jnp.tanh, key=jax.random.key(0)))
rule = optax.adam(1e-3)
state = rule.init(eqx.filter(field, eqx.is_inexact_array))

@eqx.filter_jit
def step(field, state, y0, wanted):
    def loss_of(field):
        return jnp.mean((jax.vmap(lambda y: solve(field, y))(y0) - wanted) ** 2)
    loss, grads = eqx.filter_value_and_grad(loss_of)(field)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(field, updates), state, loss

y0 = jax.random.normal(jax.random.key(1), (32, 2))
wanted = y0[:, None] * jnp.exp(-jnp.linspace(0, 1, 5))[None, :, None]
losses = []
for i in range(50):
    field, state, loss = step(field, state, y0, wanted)
    losses.append(loss)
print(losses[0], losses[-1])
