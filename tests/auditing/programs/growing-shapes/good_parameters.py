# runs
# Arrays of many sizes, each of them again in every step: the parameters of a model, updated outside of jit.
import jax
import jax.numpy as jnp

sizes = [(40, 4), (30, 40), (20, 30), (15, 20), (10, 15), (5, 10)]
params = [jnp.ones(size) for size in sizes]
for step in range(30):
    params = jax.tree.map(lambda p: p - 0.1 * p, params)
print(float(params[0].sum()))
