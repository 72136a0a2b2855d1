# runs
# Class weights of a data set that are converted for each batch.
import jax, jax.numpy as jnp, numpy as np, optax
import flax.linen as nn
from flax.training.train_state import TrainState

class Digits:
    def __init__(self, n):
        rng = np.random.default_rng(0)
        self.images = rng.normal(size=(n, 784)).astype(np.float32)
        self.labels = rng.integers(0, 10, n)
        self.prior = rng.random((400, 784), dtype=np.float32)

    def batches(self, size):
        for i in range(0, len(self.images), size):
            x = jax.device_put(self.images[i:i + size])
            y = jax.device_put(self.labels[i:i + size])
            yield x, y, jnp.asarray(self.prior)  # expect: repeated-device-put
class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(128)(x)))

net = Net()
params = net.init(jax.random.key(0), jnp.ones((1, 784)))
state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-3))

@jax.jit
def train_step(state, x, y, prior):
    def loss_fn(params):
        logits = state.apply_fn(params, x)
        kept = state.apply_fn(params, prior)
        loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
        return loss + 1e-3 * jnp.mean(kept ** 2)
    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss

data = Digits(1280)
for epoch in range(3):
    for x, y, prior in data.batches(64):
        state, loss = train_step(state, x, y, prior)
    print(epoch, loss)
