"""Distances of points, by their differences."""

import jax.numpy as jnp


def squared_distances(x):
    """All pairs of the rows of `x`: float[n, d] to float[n, n]."""
    differences = x[:, None, :] - x[None, :, :]
    return jnp.sum(differences**2, axis=2)


def centred(x):
    return x - jnp.mean(x, axis=0)
