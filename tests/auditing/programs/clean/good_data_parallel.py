# runs
# Data parallel.
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((len(jax.devices()),), ("d",))
split, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())

@jax.jit
def step(w, x):
    return w - 1e-2 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

rng = np.random.default_rng(0)
w = jax.device_put(jnp.ones((128, 128)) * 0.01, whole)
for i in range(60):
    w = step(w, jax.device_put(rng.normal(size=(256, 128)).astype("f4"), split))
print(w.sum())
