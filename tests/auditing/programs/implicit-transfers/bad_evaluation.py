# runs
# An evaluation that reads each number of correct answers.
import jax, jax.numpy as jnp, numpy as np
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(512)(x)))

net = Net()
params = net.init(jax.random.key(0), jnp.ones((1, 784)))

@jax.jit
def correct(params, x, y):
    return (net.apply(params, x).argmax(-1) == y).sum()

rng = np.random.default_rng(0)
total = 0
for i in range(150):
    x, y = rng.normal(size=(128, 784)).astype("f4"), rng.integers(0, 10, 128)
    total += int(correct(params, jax.device_put(x), jax.device_put(y)))  # expect: implicit-transfers
print("accuracy", total / (150 * 128))
