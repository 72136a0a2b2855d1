# runs
# devices: 4
import jax
import jax.numpy as jnp
import numpy as np

from jax.sharding import NamedSharding, PartitionSpec

everywhere = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec())
step = jax.jit(lambda w, x: w + x.mean())
w = jnp.float32(0.0)
for i in range(8):
    batch = jax.device_put(np.full((1024, 512), i, np.float32), everywhere)  # expect: mesh-mismatch
    w = step(w, batch)
