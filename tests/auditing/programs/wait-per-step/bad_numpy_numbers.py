# runs
# Losses kept as NumPy numbers.
import jax, jax.numpy as jnp, numpy as np, optax
import flax.linen as nn
from flax.training import train_state

class Autoencoder(nn.Module):
    @nn.compact
    def __call__(self, x):
        z = nn.tanh(nn.Dense(128)(x))
        return nn.Dense(x.shape[-1])(z)

def create(key):
    net = Autoencoder()
    return train_state.TrainState.create(
        apply_fn=net.apply, params=net.init(key, jnp.ones((1, 256))), tx=optax.adam(1e-3))

@jax.jit
def train_step(state, batch):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((state.apply_fn(p, batch) - batch) ** 2))(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss}

state = create(jax.random.key(0))
batch = jax.random.normal(jax.random.key(1), (128, 256))
history = []
for i in range(120):
    state, metrics = train_step(state, batch)
    history.append({k: np.asarray(v) for k, v in metrics.items()})  # expect: wait-per-step
print(np.mean([m["loss"] for m in history[-50:]]))
