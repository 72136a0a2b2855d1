# runs
# A correlation of all pairs by broadcasting.
import jax, jax.numpy as jnp

@jax.jit
def similarity(a, b):
    a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
    b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
    return (a[:, None, :] * b[None, :, :]).mean(axis=-1)  # expect: broadcast-matmul
key = jax.random.key(0)
images, texts = jax.random.normal(key, (2, 1024, 256))
for i in range(15):
    s = similarity(images, texts)
    images = images + 1e-3 * s @ texts
print(s.sum())
