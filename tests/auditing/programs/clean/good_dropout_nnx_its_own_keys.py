# runs
# Dropout of nnx with its own keys.
import jax, jax.numpy as jnp, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.Linear(32, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.b = nnx.Linear(64, 4, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(nnx.relu(self.norm(self.a(x)))))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adamw(1e-3), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))

@nnx.jit
def train_step(net, optimizer, metrics, x, y):
    def loss_of(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(x), y).mean()
    loss, grads = nnx.value_and_grad(loss_of)(net)
    metrics.update(loss=loss)
    optimizer.update(net, grads)

x = jax.random.normal(jax.random.key(0), (128, 32))
y = jnp.argmax(x[:, :4], -1)
for i in range(60):
    train_step(net, optimizer, metrics, x, y)
    if i % 30 == 29:
        print(i, metrics.compute())
        metrics.reset()
