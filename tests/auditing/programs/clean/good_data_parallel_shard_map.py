# runs
# Data parallel with shard_map.
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))

@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
def step(w, x):
    g = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x) ** 2))(w)
    return w - 0.1 * jax.lax.pmean(g, "data")

w = jax.device_put(jnp.eye(64), NamedSharding(mesh, P()))
x = jax.device_put(jax.random.normal(jax.random.key(0), (256, 64)), NamedSharding(mesh, P("data")))
for i in range(100):
    w = step(w, x)
print(w.sum())
