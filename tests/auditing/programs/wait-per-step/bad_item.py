# runs
# Item of each loss.
import jax, jax.numpy as jnp, numpy as np, optax

rule = optax.sgd(1e-3)

@jax.jit
def step(w, state, x):
    loss, grads = jax.value_and_grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(w, updates), state, loss

def load(rng):
    return np.sort(rng.normal(size=(64, 512)).astype("f4"), axis=0)

rng = np.random.default_rng(0)
w = jnp.ones((512, 512)) * 0.01
state, losses = rule.init(w), []
for i in range(200):
    x = jax.device_put(load(rng))
    w, state, loss = step(w, state, x)
    losses.append(loss.item())  # expect: wait-per-step
print(np.mean(losses))
