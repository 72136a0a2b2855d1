# runs
# Nnx with optax.
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(nnx.relu(self.a(x))))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)

@nnx.jit
def step(net, optimizer, x, y):
    def loss_of(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(x), y).mean()
    loss, grads = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, grads)
    return loss

rng = np.random.default_rng(0)
losses = []
for i in range(100):
    x, y = jax.device_put((rng.normal(size=(128, 64)).astype("f4"), rng.integers(0, 10, 128).astype("i4")))
    losses.append(step(net, optimizer, x, y))
print(np.mean(jax.device_get(losses)))
