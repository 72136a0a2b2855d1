# runs
# needs: diffrax
"""Fit of a Lotka-Volterra model by gradients through diffrax, ensemble by vmap."""
from dataclasses import dataclass

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class LotkaVolterra(eqx.Module):
    log_rates: jax.Array

    def __call__(self, t, y, args):
        a, b, c, d = jnp.exp(self.log_rates)
        prey, predator = y[0], y[1]
        return jnp.stack([a * prey - b * prey * predator, d * prey * predator - c * predator])


@dataclass(frozen=True)
class FitConfig:
    steps: int = 600
    lr: float = 0.02
    series: int = 8
    samples: int = 40
    t1: float = 8.0


def solve(field, y0, ts):
    return diffrax.diffeqsolve(
        diffrax.ODETerm(field),
        diffrax.Tsit5(),
        t0=0.0,
        t1=ts[-1],
        dt0=0.05,
        y0=y0,
        saveat=diffrax.SaveAt(ts=ts),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-5),
        max_steps=512,
    ).ys


solve_all = jax.vmap(solve, in_axes=(None, 0, None))


def loss_fn(field, y0s, ts, ys):
    pred = solve_all(field, y0s, ts)
    return jnp.mean((jnp.log(pred + 1e-3) - jnp.log(ys + 1e-3)) ** 2)


def make_step(optim):
    @eqx.filter_jit
    def step(field, opt_state, y0s, ts, ys):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(field, y0s, ts, ys)
        updates, opt_state = optim.update(grads, opt_state, field)
        return eqx.apply_updates(field, updates), opt_state, loss

    return step


def main():
    cfg = FitConfig()
    k_y0, k_noise = jax.random.split(jax.random.key(0))
    ts = jnp.linspace(0.0, cfg.t1, cfg.samples)
    y0s = jax.random.uniform(k_y0, (cfg.series, 2), minval=0.5, maxval=2.0)
    truth = LotkaVolterra(jnp.log(jnp.array([1.1, 0.6, 0.9, 0.5])))
    ys = eqx.filter_jit(solve_all)(truth, y0s, ts)
    ys = ys * jnp.exp(0.02 * jax.random.normal(k_noise, ys.shape))
    field = LotkaVolterra(jnp.zeros(4))
    optim = optax.adam(cfg.lr)
    opt_state = optim.init(field)
    step = make_step(optim)
    for i in range(cfg.steps):
        field, opt_state, loss = step(field, opt_state, y0s, ts, ys)
        if (i + 1) % 200 == 0:
            print(f"step {i + 1}: loss {float(loss):.5f}")
    print("rates", np.round(np.asarray(jnp.exp(field.log_rates)), 3))


if __name__ == "__main__":
    main()
