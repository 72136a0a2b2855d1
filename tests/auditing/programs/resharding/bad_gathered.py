# runs
# devices: 2
# Weights that are gathered on every device for each evaluation.
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import numpy as np

mesh = Mesh(np.array(jax.devices()), ("model",))
columns, everywhere = NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P())

@jax.jit
def train(w, x):
    return w - 1e-4 * jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - 1) ** 2))(w)

@jax.jit
def validate(w, x):
    return jnp.mean((jnp.tanh(x @ w) - 1) ** 2)

w = jax.device_put(jax.random.normal(jax.random.key(0), (1024, 1024)), columns)
x = jax.device_put(jax.random.normal(jax.random.key(1), (64, 1024)), everywhere)
losses = []
for i in range(60):
    w = train(w, x)
    losses.append(validate(jax.device_put(w, everywhere), x))  # expect: resharding
    if i % 10 == 9:
        print(losses[-1])
