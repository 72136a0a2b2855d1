# runs
# A scale of NumPy that turns bfloat16 into float32.
import jax, jax.numpy as jnp, numpy as np

SCALE = np.float32(1 / np.sqrt(64))

@jax.jit
def attend(q, k, v):
    scores = q @ k.T * SCALE  # expect: weak-type-promotion
    return jax.nn.softmax(scores) @ v

q, k, v = (jax.random.normal(key, (1024, 64), jnp.bfloat16) for key in jax.random.split(jax.random.key(0), 3))
for _ in range(20):
    q = attend(q, k, v).astype(jnp.bfloat16)
print(q.sum())
