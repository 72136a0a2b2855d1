# runs
# devices: 4
import jax
import jax.numpy as jnp
import numpy as np

from jax.sharding import NamedSharding, PartitionSpec

mesh = jax.make_mesh((4,), ("data",))
rows, columns = (NamedSharding(mesh, PartitionSpec(*names)) for names in (("data", None), (None, "data")))
step = jax.jit(lambda x: x + 1, out_shardings=rows)
x = jax.device_put(jnp.zeros((64, 64)), rows)
for _ in range(8):
    x = step(jax.device_put(x, columns))  # expect: resharding
