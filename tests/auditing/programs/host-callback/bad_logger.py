# runs
# A logger that the step calls.
import jax, jax.numpy as jnp, optax
from flax import nnx

class Logger:
    def __init__(self):
        self.rows = []

    def __call__(self, loss, norm):
        self.rows.append((float(loss), float(norm)))

log = Logger()
net = nnx.Sequential(nnx.Linear(32, 64, rngs=nnx.Rngs(0)), nnx.relu, nnx.Linear(64, 1, rngs=nnx.Rngs(1)))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)

@nnx.jit
def train_step(net, optimizer, x, y):
    loss, grads = nnx.value_and_grad(lambda net: jnp.mean((net(x)[:, 0] - y) ** 2))(net)
    jax.debug.callback(log, loss, optax.global_norm(grads))  # expect: host-callback
    optimizer.update(net, grads)
    return loss

x = jax.random.normal(jax.random.key(0), (64, 32))
y = x.sum(-1)
for _ in range(80):
    train_step(net, optimizer, x, y)
jax.effects_barrier()
print(len(log.rows), log.rows[-1])
