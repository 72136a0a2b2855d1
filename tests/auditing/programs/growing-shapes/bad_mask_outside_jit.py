# runs
import jax
import jax.numpy as jnp
import numpy as np

points = jax.random.normal(jax.random.key(0), (300, 6))
energy = 0.0
for cut in np.random.default_rng(0).permutation(np.linspace(0.2, 1.8, 8)):
    near = points[jnp.abs(points[:, 0]) < cut]  # expect: growing-shapes
    energy = energy + (near.T @ near).trace()
print(float(energy))
