# runs
"""Lennard-Jones liquid in the NVT ensemble: neighbour distances guarded, sampled in blocks."""
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Setup:
    side: int = 4
    density: float = 0.7
    temperature: float = 1.1
    dt: float = 0.004
    friction: float = 1.0
    block: int = 50
    blocks: int = 20

    @property
    def n(self):
        return self.side**3

    @property
    def box(self):
        return (self.n / self.density) ** (1.0 / 3.0)


CFG = Setup()
OFF_DIAGONAL = ~np.eye(CFG.n, dtype=bool)


class Phase(NamedTuple):
    r: jax.Array
    v: jax.Array
    f: jax.Array
    key: jax.Array


def potential(r):
    d = r[:, None, :] - r[None, :, :]
    d = d - CFG.box * jnp.round(d / CFG.box)
    d2 = jnp.where(OFF_DIAGONAL, jnp.sum(d**2, -1), 1.0)
    inside = OFF_DIAGONAL & (d2 < 6.25)
    inv6 = 1.0 / jnp.where(inside, d2, 1.0) ** 3
    return 0.5 * jnp.sum(jnp.where(inside, 4.0 * (inv6**2 - inv6) + 0.0163, 0.0))


def force(r):
    return -jax.grad(potential)(r)


def baoab(phase):
    """One Langevin step (BAOAB splitting)."""
    key, sub = jax.random.split(phase.key)
    half = 0.5 * CFG.dt
    v = phase.v + half * phase.f
    r = phase.r + half * v
    c = jnp.exp(-CFG.friction * CFG.dt)
    v = c * v + jnp.sqrt((1 - c**2) * CFG.temperature) * jax.random.normal(sub, v.shape)
    r = jnp.mod(r + half * v, CFG.box)
    f = force(r)
    return Phase(r, v + half * f, f, key)


@jax.jit
def block(phase):
    def body(phase, _):
        phase = baoab(phase)
        return phase, jnp.mean(phase.v**2)

    phase, temps = jax.lax.scan(body, phase, length=CFG.block)
    return phase, temps.mean(), potential(phase.r) / CFG.n


def lattice():
    axis = (np.arange(CFG.side) + 0.5) * CFG.box / CFG.side
    return jnp.asarray(np.stack(np.meshgrid(axis, axis, axis), -1).reshape(-1, 3), jnp.float32)


def main():
    k_v, k_run = jax.random.split(jax.random.key(0))
    r = lattice()
    v = jnp.sqrt(CFG.temperature) * jax.random.normal(k_v, r.shape)
    phase = Phase(r, v, jax.jit(force)(r), k_run)
    rows = []
    for i in range(CFG.blocks):
        phase, temp, energy = block(phase)
        rows.append((temp, energy))
    for i, (temp, energy) in enumerate(rows):
        print(f"block {i:2d}: temperature {float(temp):.3f} energy {float(energy):+.3f}")


if __name__ == "__main__":
    main()
