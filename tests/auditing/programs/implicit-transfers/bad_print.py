# runs
# A loss printed in each step.
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(256, 4096, rngs=rngs), nnx.Linear(4096, 8, rngs=rngs)

    def __call__(self, x):
        return self.b(nnx.relu(self.a(x)))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.sgd(1e-3), wrt=nnx.Param)

@nnx.jit
def step(net, optimizer, x):
    loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    optimizer.update(net, grads)
    return loss

rng = np.random.default_rng(0)
for i in range(60):
    x = jnp.asarray(np.sort(rng.normal(size=(128, 256)).astype("f4"), axis=0))
    loss = step(net, optimizer, x)
    print(f"step {i}: {float(loss):.3f}")  # expect: implicit-transfers
