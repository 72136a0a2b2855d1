# runs
# A loop over the heads.
import jax, jax.numpy as jnp

@jax.jit
def attention(q, k, v):
    heads = []
    for h in range(q.shape[0]):  # expect: python-loop-vmap
        scores = jax.nn.softmax(q[h] @ k[h].T / 8.0, axis=-1)
        heads.append(scores @ v[h])
    return jnp.stack(heads)

q, k, v = jax.random.normal(jax.random.key(0), (3, 32, 128, 32))
for i in range(20):
    q = attention(q, k, v)
print(q.sum())
