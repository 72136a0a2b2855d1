# runs
# Averaged weights that are updated outside of the step.
import jax, jax.numpy as jnp, optax
import flax.linen as nn
from flax.training.train_state import TrainState

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        for _ in range(4):
            x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(1)(x)[..., 0]

@jax.jit
def step(state, x, y):
    grads = jax.grad(lambda p: jnp.mean((state.apply_fn(p, x) - y) ** 2))(state.params)
    return state.apply_gradients(grads=grads)

def average(old, new, decay=0.999):
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)
net = Net()
x = jax.random.normal(jax.random.key(0), (64, 16))
y = x.mean(-1)
state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(1), x), tx=optax.adam(1e-3))
averaged = state.params
for i in range(50):
    state = step(state, x, y)
    averaged = average(averaged, state.params)  # expect: eager-operations
print(jax.tree.leaves(averaged)[0].sum())
