# runs
# Early stopping that looks once an epoch.
import jax, jax.numpy as jnp, numpy as np, optax
import flax.linen as nn
from flax.training.train_state import TrainState

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.tanh(nn.Dense(64)(x)))[..., 0]

rng = np.random.default_rng(0)
x = rng.standard_normal((2048, 16), np.float32)
y = np.sin(x.sum(-1))
net = Net()
state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), x[:1]), tx=optax.adam(1e-3))

@jax.jit
def train_step(state, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((state.apply_fn(p, x) - y) ** 2))(state.params)
    return state.apply_gradients(grads=grads), loss

best = float("inf")
for epoch in range(8):
    order = rng.permutation(len(x)).reshape(-1, 128)
    losses = []
    for i in order:
        state, loss = train_step(state, jax.device_put(x[i]), jax.device_put(y[i]))
        losses.append(loss)
    mean = float(jnp.mean(jnp.stack(losses)))
    if mean > best:
        break
    best = mean
print(best)
