# runs
# The tall Jacobian (400 residuals, 8 parameters) is taken in reverse mode.
"""Levenberg-Marquardt fit of a sum of damped oscillations to a long record."""
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class FitOptions:
    max_iter: int = 10
    damping0: float = 1e-2
    up: float = 4.0
    down: float = 0.4


def signal(p, t):
    """p holds (amplitude, log decay, frequency, phase) for each mode."""
    amp, logd, freq, phase = p.reshape(-1, 4).T
    wave = jnp.cos(2 * jnp.pi * freq * t[:, None] + phase)
    return jnp.sum(amp * jnp.exp(-jnp.exp(logd) * t[:, None]) * wave, axis=1)


class LeastSquares:
    def __init__(self, model, opts):
        self.model = model
        self.opts = opts
        self.fit = jax.jit(self._fit)

    def residual(self, p, t, y):
        return self.model(p, t) - y

    def linearise(self, p, t, y):
        res = functools.partial(self.residual, t=t, y=y)
        return res(p), jax.jacrev(res)(p)  # expect: derivative-mode
    def _fit(self, p, t, y):
        o = self.opts

        def body(carry, _):
            p, damping = carry
            r, jac = self.linearise(p, t, y)
            gram = jac.T @ jac
            step = jnp.linalg.solve(gram + damping * jnp.diag(jnp.diag(gram)), jac.T @ r)
            trial = p - step
            better = jnp.sum(self.residual(trial, t, y) ** 2) < jnp.sum(r**2)
            p = jnp.where(better, trial, p)
            damping = damping * jnp.where(better, o.down, o.up)
            return (p, damping), jnp.sqrt(jnp.mean(r**2))

        (p, _), rms = jax.lax.scan(body, (p, jnp.float32(o.damping0)), length=o.max_iter)
        return p, rms


def make_record(seed, n):
    rng = np.random.default_rng(seed)
    t = np.linspace(0, 6, n)
    truth = np.array([[1.0, -1.5, 1.1, 0.3], [0.6, -1.0, 2.3, -0.5]])
    y = sum(a * np.exp(-np.exp(d) * t) * np.cos(2 * np.pi * f * t + ph) for a, d, f, ph in truth)
    y = y + 0.05 * rng.normal(size=n)
    return jnp.asarray(t, jnp.float32), jnp.asarray(y, jnp.float32), truth.ravel()


def main(n=400, n_records=3):
    solver = LeastSquares(signal, FitOptions())
    errors = []
    for seed in range(n_records):
        t, y, truth = make_record(seed, n)
        start = jnp.asarray(truth * (1 + 0.04 * np.cos(np.arange(truth.size))), jnp.float32)
        p, rms = solver.fit(start, t, y)
        errors.append(np.abs(np.asarray(p) - truth).max())
        print(f"record {seed}: rms {float(rms[0]):.4f} -> {float(rms[-1]):.4f}")
    print(f"largest error of a parameter: {max(errors):.4f}")


if __name__ == "__main__":
    main()
