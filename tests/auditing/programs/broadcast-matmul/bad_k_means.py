# runs
# K-means with a norm over all pairs.
import jax
import jax.numpy as jnp

@jax.jit
def lloyd(points, centers):
    distance = jnp.linalg.norm(points[:, None, :] - centers[None, :, :], axis=-1)  # expect: broadcast-matmul
    nearest = jnp.argmin(distance, axis=1)
    total = jax.ops.segment_sum(points, nearest, centers.shape[0])
    count = jax.ops.segment_sum(jnp.ones(len(points)), nearest, centers.shape[0])
    return total / jnp.maximum(count, 1)[:, None]

points = jax.random.normal(jax.random.key(0), (4096, 128))
centers = points[:256]
for _ in range(20):
    centers = lloyd(points, centers)
print(centers.sum())
