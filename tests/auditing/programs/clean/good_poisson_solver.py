# runs
"""Preconditioned conjugate gradients on a variable Poisson problem, with and without the preconditioner."""
import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Grid(NamedTuple):
    east: jax.Array    # conductivity of the faces
    north: jax.Array


class CGState(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rz: jax.Array
    it: jax.Array


def make_grid(seed, n):
    rng = np.random.default_rng(seed)
    k = np.exp(rng.normal(size=(n, n)))
    east = np.pad(2 / (1 / k[:, 1:] + 1 / k[:, :-1]), ((0, 0), (0, 1)))
    north = np.pad(2 / (1 / k[1:] + 1 / k[:-1]), ((0, 1), (0, 0)))
    return Grid(jnp.asarray(east, jnp.float32), jnp.asarray(north, jnp.float32))


def apply_operator(grid, u):
    fe = grid.east * (jnp.roll(u, -1, 1) - u)
    fn = grid.north * (jnp.roll(u, -1, 0) - u)
    return 1e-3 * u - (fe - jnp.roll(fe, 1, 1)) - (fn - jnp.roll(fn, 1, 0))


def diagonal(grid):
    return (1e-3 + grid.east + jnp.roll(grid.east, 1, 1) + grid.north + jnp.roll(grid.north, 1, 0))


@partial(jax.jit, static_argnames="precondition")
def solve(grid, b, tol, precondition):
    inv_diag = 1.0 / diagonal(grid) if precondition else jnp.ones_like(b)
    target = tol * jnp.linalg.norm(b)

    def go_on(s):
        return (jnp.linalg.norm(s.r) > target) & (s.it < 5000)

    def body(s):
        ap = apply_operator(grid, s.p)
        alpha = s.rz / jnp.vdot(s.p, ap)
        x, r = s.x + alpha * s.p, s.r - alpha * ap
        z = inv_diag * r
        rz = jnp.vdot(r, z)
        return CGState(x, r, z + rz / s.rz * s.p, rz, s.it + 1)

    z0 = inv_diag * b
    init = CGState(jnp.zeros_like(b), b, z0, jnp.vdot(b, z0), jnp.int32(0))
    out = jax.lax.while_loop(go_on, body, init)
    return out.x, out.it


@jax.jit
def relative_residual(grid, x, b):
    return jnp.linalg.norm(b - apply_operator(grid, x)) / jnp.linalg.norm(b)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--n", type=int, default=96)
    ap.add_argument("--sources", type=int, default=6)
    args = ap.parse_args()
    grid = make_grid(0, args.n)
    keys = jax.random.split(jax.random.key(0), args.sources)
    for precondition in (False, True):
        counts, worst = [], []
        for key in keys:
            b = jax.random.normal(key, (args.n, args.n))
            x, it = solve(grid, b, 1e-4, precondition)
            counts.append(it)
            worst.append(relative_residual(grid, x, b))
        counts, worst = jax.device_get((counts, worst))
        print(f"preconditioned {precondition}: iterations {np.mean(counts):.0f}, residual {max(worst):.1e}")


if __name__ == "__main__":
    main()
