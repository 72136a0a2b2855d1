# answers: fine
# Permutations that are used, small ones, and draws without one.
import jax, jax.numpy as jnp

KEY = jax.random.PRNGKey(0)

an_epoch = lambda key=KEY, x="f32[60000,2]": jax.lax.map(lambda rows: x[rows].sum(), jax.random.permutation(key, 60000).reshape(-1, 100))
half_of_it = lambda key=KEY, x="f32[60000,2]": x[jax.random.permutation(key, 60000)[:30000]]
with_repetition = lambda key=KEY, x="f32[60000,2]": x[jax.random.randint(key, (256,), 0, 60000)]
small = lambda key=KEY, x="f32[60000,2]": x[jax.random.permutation(key, 1000)[:10]]
sorted_by_values = lambda x="f32[60000,2]": jax.lax.sort([x[:, 0], x[:, 1]], num_keys=1)[1][:5]
