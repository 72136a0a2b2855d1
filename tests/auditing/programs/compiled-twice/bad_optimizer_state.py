# runs
# An optimizer state made of Python numbers.
import jax, jax.numpy as jnp

@jax.jit
def step(state, x):
    w, velocity, count = state["w"], state["v"], state["n"]
    g = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    velocity = 0.9 * velocity + g
    count = count + jnp.float32(1)
    return {"w": w - 1e-2 * velocity / (1 - 0.9**count), "v": velocity, "n": count}

state = {"w": jnp.ones((64, 8)) * 0.1, "v": jnp.zeros((64, 8)), "n": 0}
x = jax.random.normal(jax.random.key(0), (128, 64))
for i in range(50):
    state = step(state, x)  # expect: compiled-twice
print(state["n"])
