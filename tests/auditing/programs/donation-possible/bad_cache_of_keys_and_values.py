# runs
# A cache of keys and values that is copied for each token.
import jax, jax.numpy as jnp

@jax.jit
def decode(cache, token, position):  # expect: donation-possible
    keys, values = cache
    query = jnp.tanh(token)
    keys = jax.lax.dynamic_update_slice(keys, token[:, None], (0, position, 0))
    values = jax.lax.dynamic_update_slice(values, query[:, None], (0, position, 0))
    near = jax.lax.dynamic_slice(keys, (0, position, 0), (token.shape[0], 1, token.shape[1]))
    return (keys, values), query * near[:, 0]

cache = (jnp.zeros((16, 2048, 256)), jnp.zeros((16, 2048, 256)))
token = jnp.ones((16, 256))
for position in range(20):
    cache, token = decode(cache, token, position)
print(token.sum())
