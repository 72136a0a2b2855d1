# runs
# The positions made into an array in each step.
import jax, jax.numpy as jnp, numpy as np
from flax import nnx

positions = np.sin(np.arange(1024)[:, None] / 10 ** (np.arange(256) / 64)).astype("f4")

@nnx.jit
def encode(net, x, positions):
    return nnx.relu(net(x + positions))

net = nnx.Linear(256, 256, rngs=nnx.Rngs(0))
x = jnp.ones((1024, 256))
for i in range(60):
    x = encode(net, x, jnp.asarray(positions))  # expect: repeated-device-put
print(x.sum())
