# runs
# A rate in an equinox module that decays in Python.
import equinox as eqx
import jax, jax.numpy as jnp

class Model(eqx.Module):
    linear: eqx.nn.Linear
    rate: float

    def __call__(self, x):
        return jnp.tanh(self.linear(x)) * self.rate

@eqx.filter_jit
def predict(model, x):
    return jax.vmap(model)(x)

model = Model(eqx.nn.Linear(32, 32, key=jax.random.key(0)), 1.0)
x = jnp.ones((64, 32))
for i in range(8):
    model = eqx.tree_at(lambda m: m.rate, model, model.rate * 0.95)
    x = predict(model, x)  # expect: static-churn
print(x.sum())
