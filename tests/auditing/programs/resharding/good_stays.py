# runs
# devices: 4
import jax
import jax.numpy as jnp
import numpy as np

from jax.sharding import NamedSharding, PartitionSpec

mesh = jax.make_mesh((4,), ("data",))
rows = NamedSharding(mesh, PartitionSpec("data", None))
step = jax.jit(lambda x: x + 1, out_shardings=rows)
x = jax.device_put(jnp.zeros((64, 64)), rows)
for _ in range(8):
    x = step(x)
