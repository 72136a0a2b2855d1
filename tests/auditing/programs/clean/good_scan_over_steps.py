# runs
# A scan over the steps.
import jax, jax.numpy as jnp

@jax.jit
def train(w, xs):
    def step(w, x):
        loss, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        return w - 1e-2 * g, loss
    return jax.lax.scan(step, w, xs)

xs = jax.random.normal(jax.random.key(0), (200, 64, 32))
w = jnp.ones(32)
for epoch in range(10):
    w, losses = train(w, xs)
print(losses.mean())
