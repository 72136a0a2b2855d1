# runs
# devices: 4
# Weights that lie otherwise than they are wanted.
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("m",))
rows, columns = NamedSharding(mesh, P("m", None)), NamedSharding(mesh, P(None, "m"))

@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w)

w = jax.device_put(jnp.full((1024, 1024), 1e-3), rows)
x = jax.device_put(jnp.ones((64, 1024)), NamedSharding(mesh, P()))
for step in range(60):
    x = layer(jax.device_put(w, columns), x)  # expect: resharding
print(x.sum())
