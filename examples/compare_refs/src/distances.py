"""Distances of points, by a matrix product."""

import jax.numpy as jnp


def squared_distances(x):
    """All pairs of the rows of `x`: float[n, d] to float[n, n]."""
    lengths = jnp.sum(x * x, axis=1)
    return lengths[:, None] + lengths[None, :] - 2 * x @ x.T


def centred(x):
    return x - jnp.mean(x, axis=0)
