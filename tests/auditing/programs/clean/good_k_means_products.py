# runs
# K-means by products.
import jax, jax.numpy as jnp

@jax.jit
def lloyd(points, centers):
    near = jnp.argmin((centers**2).sum(-1) - 2 * points @ centers.T, axis=1)
    total = jax.ops.segment_sum(points, near, centers.shape[0])
    count = jax.ops.segment_sum(jnp.ones(len(points)), near, centers.shape[0])
    return total / jnp.maximum(count, 1)[:, None]

points = jax.random.normal(jax.random.key(0), (4096, 64))
centers = jax.lax.fori_loop(0, 20, lambda _, c: lloyd(points, c), points[:128])
print(centers.sum())
