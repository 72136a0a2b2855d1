# runs
import jax
import jax.numpy as jnp


def load():
    rows = [[(i * j) % 7 for j in range(300)] for i in range(300)]
    return sum(map(sum, rows))  # the work is on the line above and this one


step = jax.jit(lambda w, x: w + x)
w = jnp.float32(0.0)
for _ in range(150):
    batch = load()  # expect: host-between-calls
    w = step(w, batch)
