"""Programs with one pitfall each, by people who knew neither the rules nor one another's programs.

Audited as they came, and no rule was mended for them before that: `docs/about/field-notes.md`.
"""

from __future__ import annotations

from planted.planted import Planted

NEWCOMERS = (
    Planted(
        "the whole data set is put on the device again in each training step",
        ("repeated-device-put",),
        '''\
"""Regress molecular properties from descriptors with a small flax model."""
import dataclasses
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass
class Config:
    n: int = 60_000
    dim: int = 512
    hidden: int = 16
    batch: int = 512
    steps: int = 160
    lr: float = 2e-3
    seed: int = 0


class Regressor(nn.Module):
    hidden: int

    @nn.compact
    def __call__(self, x):
        x = nn.gelu(nn.Dense(self.hidden)(x))
        x = nn.gelu(nn.Dense(self.hidden)(x))
        return nn.Dense(1)(x)[..., 0]


def make_descriptors(cfg):
    rng = np.random.default_rng(cfg.seed)
    x = rng.standard_normal((cfg.n, cfg.dim), dtype=np.float32)
    w = rng.standard_normal(cfg.dim, dtype=np.float32) / np.sqrt(cfg.dim)
    y = np.tanh(x @ w) + 0.05 * rng.standard_normal(cfg.n, dtype=np.float32)
    return x, y.astype(np.float32)


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.model = Regressor(cfg.hidden)
        self.tx = optax.adamw(cfg.lr)
        self.table, self.target = make_descriptors(cfg)
        self.params = self.model.init(jax.random.key(cfg.seed), jnp.zeros((1, cfg.dim)))
        self.opt_state = self.tx.init(self.params)
        self.key = jax.random.key(cfg.seed + 1)
        self._update = jax.jit(self._make_update())
        self.history = []

    def _make_update(self):
        model, tx, cfg = self.model, self.tx, self.cfg

        def loss_fn(params, x, y):
            return jnp.mean((model.apply(params, x) - y) ** 2)

        def update(params, opt_state, key, table, target):
            idx = jax.random.randint(key, (cfg.batch,), 0, cfg.n)
            loss, grads = jax.value_and_grad(loss_fn)(params, table[idx], target[idx])
            updates, opt_state = tx.update(grads, opt_state, params)
            return optax.apply_updates(params, updates), opt_state, loss

        return update

    def on_device(self):
        return jax.device_put((self.table, self.target))  # here

    def step(self):
        self.key, sub = jax.random.split(self.key)
        table, target = self.on_device()  # or here
        self.params, self.opt_state, loss = self._update(self.params, self.opt_state, sub, table, target)
        self.history.append(loss)

    def fit(self):
        for i in range(1, self.cfg.steps + 1):
            self.step()
            if i % 80 == 0:
                print(f"step {i} loss {float(self.history[-1]):.4f}")
        return np.asarray(jnp.stack(self.history))


if __name__ == "__main__":
    start = time.perf_counter()
    losses = Trainer(Config()).fit()
    print(f"first {losses[:10].mean():.4f} last {losses[-10:].mean():.4f} in {time.perf_counter() - start:.1f} s")
''',
        (
            (
                "        self.table, self.target = make_descriptors(cfg)\n",
                "        self.table, self.target = jax.device_put(make_descriptors(cfg))\n",
            ),
            ("return jax.device_put((self.table, self.target))", "return self.table, self.target"),
        ),
    ),
    Planted(
        "the observations grow by one per evaluation, so the surrogate compiles anew each time",
        ("growing-shapes",),
        '''\
"""Bayesian optimisation of a noisy black box with a Gaussian process surrogate."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular
from jax.scipy.stats import norm


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--evals", type=int, default=36)
    p.add_argument("--init", type=int, default=6)
    p.add_argument("--candidates", type=int, default=2048)
    p.add_argument("--seed", type=int, default=3)
    return p.parse_args()


def kernel(a, b, length=0.25):
    d2 = jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1)[None, :] - 2.0 * a @ b.T
    return jnp.exp(-0.5 * jnp.maximum(d2, 0.0) / length**2)


@jax.jit
def propose(xs, ys, mask, candidates):
    """Candidate of largest expected improvement, given the points with mask 1."""
    n = xs.shape[0]
    gram = kernel(xs, xs) * mask[:, None] * mask[None, :]
    gram = gram + jnp.eye(n) * (1e-4 + (1.0 - mask))
    chol = jnp.linalg.cholesky(gram)
    alpha = cho_solve((chol, True), ys * mask)
    cross = kernel(candidates, xs) * mask[None, :]
    mean = cross @ alpha
    v = solve_triangular(chol, cross.T, lower=True)
    std = jnp.sqrt(jnp.clip(1.0 - jnp.sum(v**2, 0), 1e-9))
    best = jnp.max(jnp.where(mask > 0, ys, -jnp.inf))
    z = (mean - best) / std
    gain = (mean - best) * norm.cdf(z) + std * norm.pdf(z)
    return candidates[jnp.argmax(gain)]


def black_box(x, rng):
    """An experiment in the laboratory: it runs outside of JAX."""
    return float(-np.sum((x - 0.3) ** 2) + 0.3 * np.cos(9.0 * x).sum() + 0.01 * rng.standard_normal())


class Campaign:
    def __init__(self, args, dim=3):
        self.args, self.dim = args, dim
        self.rng = np.random.default_rng(args.seed)
        self.x = self.rng.uniform(size=(args.init, dim)).astype(np.float32)
        self.y = np.array([black_box(x, self.rng) for x in self.x], np.float32)

    def record(self, x):
        self.x = np.concatenate([self.x, x[None]])
        self.y = np.append(self.y, np.float32(black_box(x, self.rng)))

    def observations(self):
        mask = np.ones(len(self.y), np.float32)
        return self.x, self.y, mask

    def run(self):
        key = jax.random.key(self.args.seed)
        for i in range(self.args.evals):
            key, sub = jax.random.split(key)
            cands = jax.random.uniform(sub, (self.args.candidates, self.dim))
            xs, ys, mask = self.observations()  # or here
            x = propose(xs, ys, mask, cands)  # here
            self.record(np.asarray(x))
            if i % 12 == 0:
                print(f"evaluation {i}: best {self.y.max():.4f}")
        return self.x[self.y.argmax()], self.y.max()


if __name__ == "__main__":
    x, y = Campaign(parse()).run()
    print("best point", x, "value", y)
''',
        (
            (
                "        mask = np.ones(len(self.y), np.float32)\n        return self.x, self.y, mask\n",
                "        room = self.args.init + self.args.evals - len(self.y)\n        mask = np.pad(np.ones(len(self.y), np.float32), (0, room))\n        return np.pad(self.x, ((0, room), (0, 0))), np.pad(self.y, (0, room)), mask\n",
            ),
        ),
    ),
    Planted(
        "the solver is called patient by patient in a comprehension",
        ("small-calls",),
        '''\
"""Pharmacokinetics: simulate a two-compartment model for a cohort of patients with diffrax."""
from typing import NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np


class Patient(NamedTuple):
    ka: jax.Array
    ke: jax.Array
    k12: jax.Array
    k21: jax.Array
    dose: jax.Array


TIMES = jnp.linspace(0.0, 24.0, 49)
COHORT = 1500


def vector_field(t, y, p):
    gut, central, peripheral = y
    absorbed = p.ka * gut
    return (
        -absorbed,
        absorbed - (p.ke + p.k12) * central + p.k21 * peripheral,
        p.k12 * central - p.k21 * peripheral,
    )


@jax.jit
def concentration(p):
    sol = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        diffrax.Tsit5(),
        t0=0.0,
        t1=24.0,
        dt0=0.1,
        y0=(p.dose, jnp.zeros_like(p.dose), jnp.zeros_like(p.dose)),
        args=p,
        saveat=diffrax.SaveAt(ts=TIMES),
        stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6),
    )
    return sol.ys[1]


def draw_cohort(key, n):
    """A population with log-normal variability between patients."""
    typical = np.array([1.2, 0.25, 0.3, 0.2], np.float32)
    eta = 0.3 * jax.random.normal(key, (n, 4))
    rates = typical * jnp.exp(eta)
    return Patient(*(rates[:, i] for i in range(4)), dose=jnp.full((n,), 100.0))


def simulate(cohort):
    people = [Patient(*row) for row in np.stack(cohort, axis=1)]
    curves = [concentration(p) for p in people]  # here
    return jnp.stack(curves)


def summarise(curves):
    peak = jnp.max(curves, axis=1)
    area = jnp.trapezoid(curves, TIMES, axis=1)
    time_of_peak = TIMES[jnp.argmax(curves, axis=1)]
    return {"cmax": peak, "auc": area, "tmax": time_of_peak}


def main():
    key_a, key_b = jax.random.split(jax.random.key(7))
    for name, key in (("reference", key_a), ("test", key_b)):
        curves = simulate(draw_cohort(key, COHORT))
        for stat, values in summarise(curves).items():
            low, mid, high = np.percentile(np.asarray(values), [5, 50, 95])
            print(f"{name:9s} {stat:5s} median {mid:8.3f}  90% [{low:8.3f}, {high:8.3f}]")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    people = [Patient(*row) for row in np.stack(cohort, axis=1)]\n    curves = [concentration(p) for p in people]  # here\n    return jnp.stack(curves)\n",
                "    return jax.vmap(concentration)(cohort)\n",
            ),
        ),
    ),
    Planted(
        "the catalogue lies on one device and is spread over the four devices again at each call",
        ("resharding",),
        '''\
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

"""Photometric redshifts: fit spectral templates to a catalogue that is spread over four devices."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P


@dataclasses.dataclass(frozen=True)
class Survey:
    galaxies: int = 400_000
    bands: int = 48
    templates: int = 6
    redshifts: int = 80
    seed: int = 2


mesh = Mesh(np.array(jax.devices()), ("galaxy",))
by_galaxy = NamedSharding(mesh, P("galaxy"))
everywhere = NamedSharding(mesh, P())


def template_fluxes(key, cfg, z):
    """Fluxes of all templates in all bands at redshift z."""
    wave = jnp.linspace(0.3, 1.2, cfg.bands) / (1.0 + z)
    centre, width = jax.random.uniform(key, (2, cfg.templates, 1), minval=0.1, maxval=0.8)
    return jnp.exp(-((wave - centre) ** 2) / width**2)


def refine(best, fluxes, template, z):
    """Keep, for each galaxy, the redshift of largest normalised overlap."""
    best_fit, best_z = best
    unit = template / jnp.linalg.norm(template, axis=1, keepdims=True)
    fit = jnp.max(fluxes @ unit.T, axis=1)
    better = fit > best_fit
    return jnp.where(better, fit, best_fit), jnp.where(better, z, best_z)


refine = jax.jit(
    refine,
    in_shardings=((by_galaxy, by_galaxy), by_galaxy, everywhere, everywhere),
    out_shardings=(by_galaxy, by_galaxy),
)


class Catalogue:
    def __init__(self, cfg):
        rng = np.random.default_rng(cfg.seed)
        self.cfg, self.key = cfg, jax.random.key(cfg.seed)
        self.z = rng.uniform(0.0, 1.0, cfg.galaxies).astype(np.float32)
        kind = rng.integers(0, cfg.templates, cfg.galaxies)
        grid = np.asarray(jax.vmap(lambda z: template_fluxes(self.key, cfg, z))(jnp.linspace(0.0, 1.0, 101)))
        fluxes = grid[np.rint(self.z * 100).astype(int), kind]
        fluxes += 0.02 * rng.standard_normal(fluxes.shape, dtype=np.float32)
        self.fluxes = jnp.asarray(fluxes)  # or here

    def start(self):
        n = self.cfg.galaxies
        return jax.device_put((np.full(n, -np.inf, np.float32), np.zeros(n, np.float32)), by_galaxy)

    def redshifts(self):
        best = self.start()
        make = jax.jit(template_fluxes, static_argnames="cfg", out_shardings=everywhere)
        for z in np.linspace(0.0, 1.0, self.cfg.redshifts, dtype=np.float32):
            best = refine(best, self.fluxes, make(self.key, self.cfg, z), z)  # here
        return np.asarray(best[1])


def main():
    catalogue = Catalogue(Survey())
    error = np.abs(catalogue.redshifts() - catalogue.z)
    print(f"median error {np.median(error):.4f}  outliers {np.mean(error > 0.15):.3f}")


if __name__ == "__main__":
    main()
''',
        (("self.fluxes = jnp.asarray(fluxes)", "self.fluxes = jax.device_put(fluxes, by_galaxy)"),),
        devices=4,
    ),
    Planted(
        "the embedding looks its rows up by a one-hot matrix product",
        ("one-hot-matmul",),
        '''\
"""A bag-of-contexts word model in flax.linen, trained on a synthetic Zipf corpus."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training import train_state

VOCAB, WIDTH, CONTEXT, CLASSES = 8000, 64, 12, 20
BATCH, STEPS = 256, 60


class Lookup(nn.Module):
    vocab: int
    width: int

    @nn.compact
    def __call__(self, ids):
        table = self.param("table", nn.initializers.normal(0.1), (self.vocab, self.width))
        return jax.nn.one_hot(ids, self.vocab, dtype=table.dtype) @ table  # here


class TopicTagger(nn.Module):
    @nn.compact
    def __call__(self, ids):
        emb = Lookup(VOCAB, WIDTH, name="words")(ids)
        score = nn.Dense(1, name="attention")(jnp.tanh(emb))
        pooled = jnp.sum(nn.softmax(score, axis=1) * emb, axis=1)
        hidden = nn.relu(nn.Dense(WIDTH)(nn.LayerNorm()(pooled)))
        return nn.Dense(CLASSES)(hidden)


def corpus(seed, n):
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, CLASSES, n)
    base = rng.zipf(1.3, size=(n, CONTEXT)) % VOCAB
    tagged = (topics[:, None] * 37 + rng.integers(0, 30, (n, CONTEXT))) % VOCAB
    ids = np.where(rng.random((n, CONTEXT)) < 0.4, tagged, base)
    return jnp.asarray(ids, jnp.int32), jnp.asarray(topics, jnp.int32)


@jax.jit
def train_step(state, ids, labels):
    def loss_fn(params):
        logits = state.apply_fn({"params": params}, ids)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


@jax.jit
def accuracy(state, ids, labels):
    logits = state.apply_fn({"params": state.params}, ids)
    return jnp.mean(jnp.argmax(logits, -1) == labels)


def main():
    ids, topics = corpus(0, BATCH * STEPS)
    test_ids, test_topics = corpus(1, BATCH)
    model = TopicTagger()
    params = model.init(jax.random.key(0), ids[:1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(3e-3))
    losses = []
    for batch_ids, batch_topics in zip(jnp.split(ids, STEPS), jnp.split(topics, STEPS)):
        state, loss = train_step(state, batch_ids, batch_topics)
        losses.append(loss)
    print("loss", np.asarray(jnp.stack(losses))[::20])
    print("test accuracy", float(accuracy(state, test_ids, test_topics)))


if __name__ == "__main__":
    main()
''',
        (("jax.nn.one_hot(ids, self.vocab, dtype=table.dtype) @ table", "jnp.take(table, ids, axis=0)"),),
    ),
    Planted(
        "the similarity matrix is a broadcast product summed over the embedding, not a matmul",
        ("broadcast-matmul",),
        '''\
"""Contrastive pre-training of two equinox encoders (signal and caption)."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

DIM_A, DIM_B, EMBED = 96, 48, 128
BATCH, STEPS, POOL = 512, 24, 8192


class Encoder(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, size, key):
        self.mlp = eqx.nn.MLP(size, EMBED, 128, 1, key=key)

    def __call__(self, x):
        z = self.mlp(x)
        return z / (jnp.linalg.norm(z) + 1e-6)


class TwoTower(eqx.Module):
    signal: Encoder
    caption: Encoder
    log_scale: jax.Array

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.signal = Encoder(DIM_A, a)
        self.caption = Encoder(DIM_B, b)
        self.log_scale = jnp.log(jnp.array(10.0))

    @staticmethod
    def agreement(left, right):
        pairs = left[:, None, :] * right[None, :, :]  # or here
        return pairs.sum(axis=-1)  # here

    def __call__(self, signals, captions):
        left = jax.vmap(self.signal)(signals)
        right = jax.vmap(self.caption)(captions)
        return jnp.exp(self.log_scale) * self.agreement(left, right)


def info_nce(model, signals, captions):
    logits = model(signals, captions)
    labels = jnp.arange(logits.shape[0])
    ce = optax.softmax_cross_entropy_with_integer_labels
    return 0.5 * (ce(logits, labels).mean() + ce(logits.T, labels).mean())


def paired_pool(key):
    k_latent, k_a, k_b = jax.random.split(key, 3)
    latent = jax.random.normal(k_latent, (POOL, 16))
    a = jnp.tanh(latent @ jax.random.normal(k_a, (16, DIM_A)))
    b = jnp.sin(latent @ jax.random.normal(k_b, (16, DIM_B)))
    return a, b


tx = optax.adam(1e-3)


@eqx.filter_jit
def step(model, opt_state, key, pool):
    idx = jax.random.randint(key, (BATCH,), 0, POOL)
    loss, grads = eqx.filter_value_and_grad(info_nce)(model, pool[0][idx], pool[1][idx])
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def main():
    k_model, k_data, k_loop = jax.random.split(jax.random.key(11), 3)
    model = TwoTower(k_model)
    pool = paired_pool(k_data)
    opt_state = tx.init(eqx.filter(model, eqx.is_array))
    for i, key in enumerate(jax.random.split(k_loop, STEPS)):
        model, opt_state, loss = step(model, opt_state, key, pool)
        if (i + 1) % 8 == 0:
            print(f"step {i + 1} loss {loss:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        pairs = left[:, None, :] * right[None, :, :]  # or here\n        return pairs.sum(axis=-1)  # here\n",
                "        return left @ right.T\n",
            ),
        ),
    ),
    Planted(
        "both Brownian increments are drawn with the same key, so their correlation is not rho",
        ("key-reuse",),
        '''\
"""Price options under the Heston stochastic-volatility model by Monte Carlo."""
import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Heston:
    spot: float = 100.0
    v0: float = 0.04
    kappa: float = 1.5
    theta: float = 0.04
    sigma: float = 0.6
    rho: float = -0.7
    rate: float = 0.02


def gaussian_pair(key, n, rho):
    """Increments of price and variance with correlation rho."""
    k_price, k_vol = jax.random.split(key)
    z_vol = jax.random.normal(k_vol, (n,))
    independent = jax.random.normal(k_vol, (n,))  # here
    z_price = rho * z_vol + jnp.sqrt(1.0 - rho**2) * independent
    return z_price, z_vol


@partial(jax.jit, static_argnames=("model", "paths", "steps"))
def terminal(key, model, paths, steps, maturity):
    dt = maturity / steps

    def body(carry, key):
        log_s, v, moments = carry
        z_s, z_v = gaussian_pair(key, paths, model.rho)
        vp = jnp.maximum(v, 0.0)
        log_s = log_s + (model.rate - 0.5 * vp) * dt + jnp.sqrt(vp * dt) * z_s
        v = v + model.kappa * (model.theta - vp) * dt + model.sigma * jnp.sqrt(vp * dt) * z_v
        moments = moments + jnp.stack([jnp.mean(z_s * z_v), jnp.mean(z_s**2), jnp.mean(z_v**2)])
        return (log_s, v, moments), None

    init = (jnp.full((paths,), jnp.log(model.spot)), jnp.full((paths,), model.v0), jnp.zeros(3))
    (log_s, _, m), _ = jax.lax.scan(body, init, jax.random.split(key, steps))
    return jnp.exp(log_s), m[0] / jnp.sqrt(m[1] * m[2])


@jax.jit
def price_calls(s, strikes, rate, maturity):
    payoff = jnp.maximum(s[None, :] - strikes[:, None], 0.0)
    discounted = jnp.exp(-rate * maturity) * payoff
    return discounted.mean(1), discounted.std(1) / jnp.sqrt(s.shape[0])


def main():
    model = Heston()
    strikes = jnp.array([80.0, 90.0, 100.0, 110.0, 120.0])
    key = jax.random.key(2024)
    for maturity in (0.5, 1.0, 2.0):
        key, sub = jax.random.split(key)
        s, corr = terminal(sub, model, 200_000, 600, maturity)
        price, err = price_calls(s, strikes, model.rate, maturity)
        print(f"T={maturity}: correlation asked {model.rho:+.2f} realised {float(corr):+.3f}")
        for k, p, e in zip(np.asarray(strikes), np.asarray(price), np.asarray(err)):
            print(f"   K={k:6.1f}  call {p:8.4f} +- {e:.4f}")


if __name__ == "__main__":
    main()
''',
        (("independent = jax.random.normal(k_vol, (n,))", "independent = jax.random.normal(k_price, (n,))"),),
        is_about_results=True,
    ),
    Planted(
        "the where guards the square root only forwards, its gradient on the diagonal is NaN",
        ("where-gradient",),
        '''\
"""Relax a soft-sphere packing in a periodic box by FIRE-like gradient descent."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BOX = 20.0


class State(NamedTuple):
    position: jax.Array
    velocity: jax.Array
    dt: jax.Array


def displacement(a, b):
    d = a - b
    return d - BOX * jnp.round(d / BOX)


def pair_distance(r):
    d = displacement(r[:, None, :], r[None, :, :])
    d2 = jnp.sum(d**2, axis=-1)
    return jnp.where(d2 > 0.0, jnp.sqrt(d2), 0.0)  # here


def energy(r, radius):
    dist = pair_distance(r)
    touch = radius[:, None] + radius[None, :]
    overlap = jnp.maximum(1.0 - dist / touch, 0.0)
    overlap = overlap * (1.0 - jnp.eye(r.shape[0]))
    return 0.25 * jnp.sum(overlap**2)


force = jax.grad(lambda r, radius: -energy(r, radius))


def fire(state, radius):
    f = force(state.position, radius)
    power = jnp.sum(f * state.velocity)
    mixed = 0.9 * state.velocity + 0.1 * f * jnp.linalg.norm(state.velocity) / (jnp.linalg.norm(f) + 1e-12)
    velocity = jnp.where(power >= 0, mixed, 0.0) + state.dt * f
    dt = jnp.where(power >= 0, jnp.minimum(state.dt * 1.05, 0.3), state.dt * 0.5)
    position = jnp.mod(state.position + dt * velocity, BOX)
    return State(position, velocity, dt)


@jax.jit
def relax(state, radius):
    """A hundred iterations, and the energy after them."""
    state = jax.lax.fori_loop(0, 100, lambda _, s: fire(s, radius), state)
    return state, energy(state.position, radius)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--particles", type=int, default=400)
    p.add_argument("--rounds", type=int, default=12)
    args = p.parse_args()
    k_pos, k_rad = jax.random.split(jax.random.key(5))
    position = jax.random.uniform(k_pos, (args.particles, 2), maxval=BOX)
    radius = jax.random.uniform(k_rad, (args.particles,), minval=0.4, maxval=0.55)
    state = State(position, jnp.zeros_like(position), jnp.array(0.05))
    start = energy(position, radius)
    trace = [start]
    for _ in range(args.rounds):
        state, e = relax(state, radius)
        trace.append(e)
    trace = np.asarray(jnp.stack(trace))
    print("energy", trace[[0, 1, 4, -1]])
    print("finite:", bool(np.isfinite(trace).all()), "relaxed:", bool(trace[-1] < 0.1 * trace[0]))


if __name__ == "__main__":
    main()
''',
        (
            (
                "    return jnp.where(d2 > 0.0, jnp.sqrt(d2), 0.0)",
                "    safe = jnp.where(d2 > 0.0, d2, 1.0)\n    return jnp.where(d2 > 0.0, jnp.sqrt(safe), 0.0)",
            ),
        ),
        is_about_results=True,
    ),
    Planted(
        "the meter pulls 64 scalars one by one off the device in each step",
        ("element-reads",),
        '''\
"""Multi-task regression with flax.nnx: one trunk, sixty-four heads, the loss of each task tracked."""
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

TASKS, DIM, HIDDEN, BATCH, STEPS = 64, 24, 48, 128, 1500


class MultiTask(nnx.Module):
    def __init__(self, rngs):
        self.trunk = nnx.Linear(DIM, HIDDEN, rngs=rngs)
        self.norm = nnx.LayerNorm(HIDDEN, rngs=rngs)
        self.heads = nnx.Linear(HIDDEN, TASKS, rngs=rngs)

    def __call__(self, x):
        return self.heads(nnx.gelu(self.norm(self.trunk(x))))


class Meter:
    """Exponential mean of the loss of each task, and the whole history."""

    def __init__(self):
        self.rows = []

    def add(self, task_losses):
        self.rows.append([task_losses[t].item() for t in range(TASKS)])  # here

    def summary(self):
        table = np.asarray(self.rows)
        return table[:50].mean(0), table[-50:].mean(0)


def make_tasks(key):
    k_x, k_w, k_v = jax.random.split(key, 3)
    x = jax.random.normal(k_x, (BATCH * 64, DIM))
    hidden = jnp.tanh(x @ jax.random.normal(k_w, (DIM, 12)) / 5.0)
    return x, hidden @ jax.random.normal(k_v, (12, TASKS))


tx = optax.adam(1e-3)
graphdef, start = nnx.split(MultiTask(nnx.Rngs(0)))


@jax.jit
def train_step(params, opt_state, key, xs, ys):
    first = jax.random.randint(key, (), 0, xs.shape[0] - BATCH)
    x = jax.lax.dynamic_slice_in_dim(xs, first, BATCH)
    y = jax.lax.dynamic_slice_in_dim(ys, first, BATCH)

    def loss_fn(p):
        out = nnx.merge(graphdef, p)(x)
        per_task = jnp.mean((out - y) ** 2, axis=0)
        return per_task.mean(), per_task

    (_, per_task), grads = jax.value_and_grad(loss_fn, has_aux=True)(params)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, per_task


def main():
    k_data, k_loop = jax.random.split(jax.random.key(1))
    xs, ys = make_tasks(k_data)
    params, opt_state = start, tx.init(start)
    meter = Meter()
    for key in jax.random.split(k_loop, STEPS):
        params, opt_state, per_task = train_step(params, opt_state, key, xs, ys)
        meter.add(per_task)  # or here
    first, last = meter.summary()
    for t in range(0, TASKS, 16):
        print(f"task {t:2d}: {first[t]:.4f} -> {last[t]:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            ("self.rows.append([task_losses[t].item() for t in range(TASKS)])", "self.rows.append(task_losses)"),
            ("table = np.asarray(self.rows)", "table = np.asarray(jax.device_get(self.rows))"),
        ),
    ),
    Planted(
        "a new jitted kernel is made for each temperature of the ladder",
        ("jit-in-loop",),
        '''\
"""Tempered sampling of a bimodal posterior with blackjax, for an estimate of the evidence."""
import functools

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

DIM, CHAINS, DRAWS = 4, 32, 150
BETAS = np.linspace(0.0, 1.0, 10) ** 3


def log_prior(x):
    return -0.5 * jnp.sum(x**2) / 9.0 - 0.5 * DIM * jnp.log(2 * jnp.pi * 9.0)


def log_likelihood(x):
    a = -0.5 * jnp.sum((x - 2.0) ** 2) / 0.25
    b = -0.5 * jnp.sum((x + 2.0) ** 2) / 0.25
    return jnp.logaddexp(a, b) - jnp.log(2.0)


def tempered(x, beta):
    return log_prior(x) + beta * log_likelihood(x)


def sample_level(beta, key, positions, step_size=0.25):
    """HMC at one temperature: all chains, all draws."""
    target = functools.partial(tempered, beta=beta)
    hmc = blackjax.hmc(target, step_size, jnp.ones(DIM), num_integration_steps=8)

    def one_chain(key, position):
        def body(state, key):
            state, info = hmc.step(key, state)
            return state, (log_likelihood(state.position), info.acceptance_rate)

        state, (ll, acc) = jax.lax.scan(body, hmc.init(position), jax.random.split(key, DRAWS))
        return state.position, ll[DRAWS // 3 :].mean(), acc.mean()

    return jax.vmap(one_chain)(jax.random.split(key, positions.shape[0]), positions)


class Ladder:
    def __init__(self, betas, seed):
        self.betas = betas
        self.key = jax.random.key(seed)
        self.means, self.acceptance = [], []

    def climb(self):
        self.key, sub = jax.random.split(self.key)
        positions = 3.0 * jax.random.normal(sub, (CHAINS, DIM))
        for beta in self.betas:  # or here
            kernel = jax.jit(functools.partial(sample_level, float(beta)))  # here
            self.key, sub = jax.random.split(self.key)
            positions, mean_ll, acc = kernel(sub, positions)
            self.means.append(mean_ll.mean())
            self.acceptance.append(acc.mean())
        return positions

    def log_evidence(self):
        means = np.asarray(jnp.stack(self.means))
        return np.trapezoid(means, self.betas)


def main():
    ladder = Ladder(BETAS, seed=9)
    final = ladder.climb()
    print("acceptance", np.round(np.asarray(jnp.stack(ladder.acceptance)), 2))
    print("share of chains in the upper mode", float((final.mean(1) > 0).mean()))
    print("log evidence", ladder.log_evidence())


if __name__ == "__main__":
    main()
''',
        (
            (
                "        for beta in self.betas:  # or here\n            kernel = jax.jit(functools.partial(sample_level, float(beta)))  # here\n",
                "        kernel = jax.jit(sample_level)\n        for beta in self.betas:\n",
            ),
            ("kernel(sub, positions)", "kernel(jnp.float32(beta), sub, positions)"),
        ),
    ),
    Planted(
        "the time loop of the solver is a Python loop that is unrolled into the trace",
        ("unrolled-loop",),
        '''\
"""Calibrate the diffusivity field of a 1-D reaction-diffusion model against final observations."""
import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Grid:
    cells: int = 96
    steps: int = 26
    dt: float = 0.4

    @property
    def x(self):
        return jnp.linspace(0.0, 1.0, self.cells)


GRID = Grid()


def laplacian(u, d):
    face = 0.5 * (d[1:] + d[:-1])
    flux = face * (u[1:] - u[:-1])
    flux = jnp.pad(flux, 1)
    return flux[1:] - flux[:-1]


def advance(u, d, growth):
    return u + GRID.dt * (laplacian(u, d) + growth * u * (1.0 - u))


class Model:
    """Solves the equation from the initial profile to the final time."""

    def __init__(self, grid, growth):
        self.grid = grid
        self.growth = growth
        self.initial = jnp.exp(-((grid.x - 0.3) ** 2) / 0.005)

    def __call__(self, log_d):
        d = jnp.exp(log_d)
        u = self.initial
        for _ in range(self.grid.steps):  # here
            u = advance(u, d, self.growth)  # or here
        return u


model = Model(GRID, growth=0.05)
tx = optax.adam(0.05)


def misfit(log_d, observed):
    rough = jnp.sum(jnp.diff(log_d) ** 2)
    return jnp.sum((model(log_d) - observed) ** 2) + 1e-3 * rough


@jax.jit
def update(log_d, opt_state, observed):
    value, grad = jax.value_and_grad(misfit)(log_d, observed)
    updates, opt_state = tx.update(grad, opt_state)
    return optax.apply_updates(log_d, updates), opt_state, value


def main():
    truth = jnp.log(0.8 + 0.6 * jnp.sin(6.0 * GRID.x) ** 2)
    noise = 0.002 * jax.random.normal(jax.random.key(0), (GRID.cells,))
    observed = jax.jit(model)(truth) + noise
    log_d = jnp.zeros(GRID.cells)
    opt_state = tx.init(log_d)
    values = []
    for _ in range(300):
        log_d, opt_state, value = update(log_d, opt_state, observed)
        values.append(value)
    values = np.asarray(jax.device_get(values))
    print("misfit", values[[0, 50, 150, -1]])
    print("error of the field", float(jnp.sqrt(jnp.mean((log_d - truth) ** 2))))


if __name__ == "__main__":
    main()
''',
        (
            (
                "        u = self.initial\n        for _ in range(self.grid.steps):  # here\n            u = advance(u, d, self.growth)  # or here\n        return u\n",
                "        u, _ = jax.lax.scan(lambda u, _: (advance(u, d, self.growth), None), self.initial, length=self.grid.steps)\n        return u\n",
            ),
        ),
    ),
    Planted(
        "one numpyro sample site per school instead of a plate",
        ("unrolled-loop", "python-loop-vmap"),
        '''\
"""Hierarchical model of school results in numpyro: partial pooling of forty schools."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS

SCHOOLS, PUPILS = 40, 15


def synthetic(seed):
    rng = np.random.default_rng(seed)
    effect = rng.normal(1.0, 0.7, SCHOOLS)
    hours = rng.normal(size=(SCHOOLS, PUPILS))
    score = effect[:, None] + 0.4 * hours + rng.normal(0.0, 1.0, (SCHOOLS, PUPILS))
    return jnp.asarray(hours, jnp.float32), jnp.asarray(score, jnp.float32), effect


def school_effects(mu, tau):
    """Non-centred effect of each school."""
    raw = jnp.stack([numpyro.sample(f"raw_{s}", dist.Normal(0.0, 1.0)) for s in range(SCHOOLS)])  # here
    return numpyro.deterministic("effect", mu + tau * raw)


def model(hours, score=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    effect = school_effects(mu, tau)
    mean = effect[:, None] + slope * hours
    with numpyro.plate("pupil", PUPILS, dim=-1), numpyro.plate("class", SCHOOLS, dim=-2):
        numpyro.sample("score", dist.Normal(mean, sigma), obs=score)


def fit(key, hours, score, args):
    mcmc = MCMC(
        NUTS(model, max_tree_depth=6),
        num_warmup=args.warmup,
        num_samples=args.samples,
        progress_bar=False,
    )
    mcmc.run(key, hours, score)
    return mcmc.get_samples()


def report(samples, truth):
    for name in ("mu", "tau", "slope", "sigma"):
        values = np.asarray(samples[name])
        print(f"{name:6s} {values.mean():.3f} +- {values.std():.3f}")
    effect = np.asarray(samples["effect"]).mean(0)
    print("correlation with the true effects", np.corrcoef(effect, truth)[0, 1])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--samples", type=int, default=200)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    hours, score, truth = synthetic(args.seed)
    report(fit(jax.random.key(args.seed), hours, score, args), truth)


if __name__ == "__main__":
    main()
''',
        (
            (
                '    raw = jnp.stack([numpyro.sample(f"raw_{s}", dist.Normal(0.0, 1.0)) for s in range(SCHOOLS)])',
                '    with numpyro.plate("school", SCHOOLS, dim=-1):\n        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))',
            ),
        ),
    ),
    Planted(
        "an explicit solver (Tsit5) integrates a stiff equation",
        ("stiff-equation",),
        '''\
"""Parameter scan of a stiff relaxation oscillator (van der Pol) with diffrax."""
import dataclasses

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class ScanConfig:
    mu_low: float = 500.0
    mu_high: float = 900.0
    points: int = 24
    samples: int = 64
    rtol: float = 1e-4
    atol: float = 1e-6


class Oscillator(eqx.Module):
    mu: jax.Array

    def __call__(self, t, y, args):
        x, v = y
        return jnp.stack([v, self.mu * (1.0 - x**2) * v - x])


class Integrator(eqx.Module):
    solver: diffrax.AbstractSolver
    controller: diffrax.AbstractStepSizeController
    samples: int = eqx.field(static=True)

    @classmethod
    def from_config(cls, cfg):
        return cls(
            solver=diffrax.Tsit5(),  # here
            controller=diffrax.PIDController(rtol=cfg.rtol, atol=cfg.atol),
            samples=cfg.samples,
        )

    @eqx.filter_jit
    def __call__(self, field, horizon):
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(field),
            self.solver,
            t0=0.0,
            t1=horizon,
            dt0=1e-4,
            y0=jnp.array([2.0, 0.0]),
            saveat=diffrax.SaveAt(ts=jnp.linspace(0.0, horizon, self.samples)),
            stepsize_controller=self.controller,
            max_steps=None,
        )
        return sol.ys, sol.stats["num_steps"]


def amplitude(ys):
    return jnp.max(jnp.abs(ys[:, 0]))


def main():
    cfg = ScanConfig()
    integrate = Integrator.from_config(cfg)
    rows = []
    for mu in np.geomspace(cfg.mu_low, cfg.mu_high, cfg.points):
        field = Oscillator(jnp.asarray(mu, jnp.float32))
        ys, steps = integrate(field, jnp.asarray(0.7 * mu, jnp.float32))
        rows.append((mu, amplitude(ys), ys[-1, 0], steps))
    for mu, amp, last, steps in rows:
        print(f"mu {mu:7.1f}  amplitude {float(amp):.3f}  x(T) {float(last):+.3f}  steps {int(steps)}")


if __name__ == "__main__":
    main()
''',
        (("solver=diffrax.Tsit5(),", "solver=diffrax.Kvaerno5(),"),),
    ),
    Planted(
        "each transition added by .at[].set outside of jit copies the whole replay memory",
        ("copied-updates",),
        '''\
"""Deep Q-learning on a toy swing-up, with a replay memory on the device (flax.linen + optax)."""
import dataclasses
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

OBS, ACTIONS, BATCH, GAMMA = 16, 3, 64, 0.97


class QNet(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(64)(x))
        return nn.Dense(ACTIONS)(x)


@dataclasses.dataclass
class Replay:
    """Ring buffer of transitions: (obs, action, reward, next obs) in one row."""

    capacity: int = 100_000
    size: int = 0
    rows: Any = None

    def __post_init__(self):
        self.rows = jnp.zeros((self.capacity, 2 * OBS + 2))

    def add(self, row):
        self.rows = self.rows.at[self.size % self.capacity].set(row)  # here
        self.size += 1

    def sample(self, rng):
        idx = rng.integers(0, min(self.size, self.capacity), BATCH)
        return self.rows[idx]


class Pendulum:
    """The environment is an ordinary Python object (NumPy)."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.mix = self.rng.standard_normal((2, OBS)).astype(np.float32)
        self.state = np.array([np.pi, 0.0], np.float32)

    def observe(self):
        return np.sin(self.state @ self.mix).astype(np.float32)

    def step(self, action):
        angle, speed = self.state
        speed = np.clip(speed + 0.1 * (np.sin(angle) + 0.8 * (action - 1)), -4, 4)
        self.state = np.array([angle + 0.1 * speed, speed], np.float32)
        return np.cos(self.state[0]) - 0.05 * speed**2


net, tx = QNet(), optax.adam(1e-3)


@jax.jit
def learn(params, target, opt_state, rows):
    obs, act, rew, nxt = jnp.split(rows, [OBS, OBS + 1, OBS + 2], axis=1)
    goal = rew[:, 0] + GAMMA * net.apply(target, nxt).max(1)

    def td_loss(p):
        q = jnp.take_along_axis(net.apply(p, obs), act.astype(jnp.int32), 1)[:, 0]
        return optax.huber_loss(q, goal).mean()

    loss, grads = jax.value_and_grad(td_loss)(params)
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), opt_state, loss


def main(steps=1500, warmup=200):
    rng = np.random.default_rng(0)
    env, memory = Pendulum(1), Replay()
    params = target = net.init(jax.random.key(0), jnp.zeros((1, OBS)))
    opt_state = tx.init(params)
    losses = []
    for i in range(steps):
        obs, action = env.observe(), int(rng.integers(ACTIONS))
        reward = env.step(action)
        memory.add(np.concatenate([obs, [action, reward], env.observe()]).astype(np.float32))  # or here
        if i >= warmup:
            params, opt_state, loss = learn(params, target, opt_state, memory.sample(rng))
            losses.append(loss)
        if i % 250 == 0:
            target = params
    losses = np.asarray(jax.device_get(losses))
    print("TD loss", losses[:100].mean(), "->", losses[-100:].mean())


if __name__ == "__main__":
    main()
''',
        (
            (
                "self.rows = jnp.zeros((self.capacity, 2 * OBS + 2))",
                "self.rows = np.zeros((self.capacity, 2 * OBS + 2), np.float32)",
            ),
            (
                "self.rows = self.rows.at[self.size % self.capacity].set(row)",
                "self.rows[self.size % self.capacity] = row",
            ),
        ),
    ),
    Planted(
        "the whole data set is permuted in each step to draw 256 rows",
        ("permuted-draw",),
        '''\
"""Stochastic variational inference for a large logistic regression (mean field, equinox + optax)."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

ROWS, DIM, BATCH, STEPS = 400_000, 20, 256, 50


class MeanField(eqx.Module):
    loc: jax.Array
    log_scale: jax.Array

    def __init__(self, dim):
        self.loc = jnp.zeros(dim)
        self.log_scale = jnp.full(dim, -2.0)

    def sample(self, key, n):
        eps = jax.random.normal(key, (n, self.loc.size))
        return self.loc + jnp.exp(self.log_scale) * eps

    def kl(self):
        var = jnp.exp(2.0 * self.log_scale)
        return 0.5 * jnp.sum(var + self.loc**2 - 1.0 - 2.0 * self.log_scale)


class Minibatch(eqx.Module):
    """Draws a random minibatch of the rows that live on the device."""

    x: jax.Array
    y: jax.Array
    size: int = eqx.field(static=True)

    def __call__(self, key):
        order = jax.random.permutation(key, self.x.shape[0])  # here
        idx = order[: self.size]  # or here
        return self.x[idx], self.y[idx]


def negative_elbo(guide, key, x, y):
    w = guide.sample(key, 8)
    logits = w @ x.T
    log_lik = -optax.sigmoid_binary_cross_entropy(logits, y[None, :])
    return -(log_lik.sum(1).mean() * (ROWS / x.shape[0]) - guide.kl()) / ROWS


tx = optax.adam(optax.cosine_decay_schedule(0.05, STEPS))


@eqx.filter_jit
def svi_step(guide, opt_state, data, key):
    k_batch, k_guide = jax.random.split(key)
    x, y = data(k_batch)
    loss, grads = eqx.filter_value_and_grad(negative_elbo)(guide, k_guide, x, y)
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(guide, updates), opt_state, loss


def simulate(key):
    k_x, k_w, k_y = jax.random.split(key, 3)
    x = jax.random.normal(k_x, (ROWS, DIM))
    w = jax.random.normal(k_w, (DIM,))
    y = jax.random.bernoulli(k_y, jax.nn.sigmoid(x @ w)).astype(jnp.float32)
    return x, y, w


def main():
    k_data, k_loop = jax.random.split(jax.random.key(0))
    x, y, truth = simulate(k_data)
    data = Minibatch(x, y, BATCH)
    guide = MeanField(DIM)
    opt_state = tx.init(guide)
    losses = []
    for key in jax.random.split(k_loop, STEPS):
        guide, opt_state, loss = svi_step(guide, opt_state, data, key)
        losses.append(loss)
    print("loss", np.asarray(jnp.stack(losses))[[0, STEPS // 2, -1]])
    print("error of the weights", float(jnp.abs(guide.loc - truth).max()))


if __name__ == "__main__":
    main()
''',
        (
            (
                "        order = jax.random.permutation(key, self.x.shape[0])  # here\n        idx = order[: self.size]  # or here\n",
                "        idx = jax.random.randint(key, (self.size,), 0, self.x.shape[0])\n",
            ),
        ),
    ),
    Planted(
        "the cond sees a batched predicate under vmap, so both branches run for every chain in every step",
        ("vmapped-cond",),
        '''\
"""An ensemble of rigid chains under Langevin dynamics, with an occasional global move."""
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

BEADS, ENSEMBLE, EVERY, STEPS = 40, 256, 25, 500


class Chain(NamedTuple):
    r: jax.Array
    key: jax.Array
    relaxed: jax.Array


def bond_energy(r):
    bond = r[1:] - r[:-1]
    length = jnp.sqrt(jnp.sum(bond**2, -1) + 1e-9)
    return 50.0 * jnp.sum((length - 1.0) ** 2)


def local_move(chain):
    key, sub = jax.random.split(chain.key)
    noise = jax.random.normal(sub, chain.r.shape)
    r = chain.r - 2e-3 * jax.grad(bond_energy)(chain.r) + 0.05 * noise
    return Chain(r, key, chain.relaxed)


def global_move(chain):
    """Relax along the normal modes of the chain (an eigenproblem)."""
    gram = chain.r @ chain.r.T / BEADS + jnp.eye(BEADS)
    vals, vecs = jnp.linalg.eigh(gram)
    soft = vecs[:, -4:] * jnp.tanh(vals[-4:])
    r = chain.r - 0.01 * soft @ (soft.T @ chain.r)
    return Chain(r, chain.key, chain.relaxed + 1)


def advance(chain, step):
    chain = local_move(chain)
    return jax.lax.cond(step % EVERY == 0, global_move, lambda c: c, chain)  # or here


@jax.jit
def run(chains):
    def body(chains, step):
        clock = jnp.full((ENSEMBLE,), step)
        chains = jax.vmap(advance)(chains, clock)  # here
        size = jnp.mean(jnp.var(chains.r, axis=1).sum(-1))
        return chains, size

    return jax.lax.scan(body, chains, jnp.arange(1, STEPS + 1))


def initial(seed):
    keys = jax.random.split(jax.random.key(seed), ENSEMBLE)
    line = jnp.zeros((BEADS, 3)).at[:, 0].set(jnp.arange(BEADS, dtype=jnp.float32))
    return Chain(
        r=jnp.broadcast_to(line, (ENSEMBLE, BEADS, 3)),
        key=keys,
        relaxed=jnp.zeros(ENSEMBLE, jnp.int32),
    )


def main():
    chains, size = run(initial(4))
    size = np.asarray(size)
    print("mean square radius", size[[0, STEPS // 2, -1]])
    print("global moves per chain", int(chains.relaxed[0]))


if __name__ == "__main__":
    main()
''',
        (
            (
                "        clock = jnp.full((ENSEMBLE,), step)\n        chains = jax.vmap(advance)(chains, clock)  # here\n",
                "        chains = jax.vmap(advance, in_axes=(0, None))(chains, step)\n",
            ),
        ),
    ),
    Planted(
        "the annealed label smoothing sits in a static config, so each epoch compiles the whole training epoch anew",
        ("static-churn",),
        '''\
"""Three-arm spiral classifier with annealed label smoothing (flax.linen + optax)."""
import argparse
from dataclasses import dataclass, replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState


@dataclass(frozen=True)
class LossConfig:
    n_classes: int = 3
    smoothing: float = 0.2
    weight_decay: float = 1e-4


class Classifier(nn.Module):
    width: int
    n_classes: int

    @nn.compact
    def __call__(self, x):
        for _ in range(3):
            x = nn.LayerNorm()(nn.gelu(nn.Dense(self.width)(x)))
        return nn.Dense(self.n_classes)(x)


def make_spirals(rng, n, n_classes):
    label = rng.integers(0, n_classes, n)
    radius = rng.uniform(0.1, 1.0, n)
    angle = 5.0 * radius + 2.0 * np.pi * label / n_classes + 0.1 * rng.normal(size=n)
    xy = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return xy.astype(np.float32), label.astype(np.int32)


def smoothed_loss(params, apply_fn, x, y, cfg):
    logits = apply_fn({"params": params}, x)
    target = optax.smooth_labels(jax.nn.one_hot(y, cfg.n_classes), cfg.smoothing)
    ce = optax.softmax_cross_entropy(logits, target).mean()
    return ce + cfg.weight_decay * optax.tree.norm(params, squared=True)


@partial(jax.jit, static_argnames="cfg")  # here
def train_epoch(state, x, y, key, cfg):
    perm = jax.random.permutation(key, x.shape[0])
    xb = x[perm].reshape(-1, 256, 2)
    yb = y[perm].reshape(-1, 256)

    def body(state, batch):
        loss, grads = jax.value_and_grad(smoothed_loss)(state.params, state.apply_fn, *batch, cfg)
        return state.apply_gradients(grads=grads), loss

    state, losses = jax.lax.scan(body, state, (xb, yb))
    return state, losses.mean()


@jax.jit
def accuracy(state, x, y):
    return (state.apply_fn({"params": state.params}, x).argmax(-1) == y).mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--width", type=int, default=64)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    rng = np.random.default_rng(args.seed)
    cfg = LossConfig()
    x, y = map(jnp.asarray, make_spirals(rng, 2048, cfg.n_classes))
    xt, yt = map(jnp.asarray, make_spirals(rng, 1024, cfg.n_classes))

    key, init_key = jax.random.split(jax.random.key(args.seed))
    model = Classifier(args.width, cfg.n_classes)
    params = model.init(init_key, x[:1])["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(3e-3))

    history = []
    for epoch in range(args.epochs):
        key, sub = jax.random.split(key)
        epoch_cfg = replace(cfg, smoothing=cfg.smoothing * (1 - epoch / args.epochs))  # or here
        state, loss = train_epoch(state, x, y, sub, epoch_cfg)  # or here
        history.append(loss)
    print("mean loss per epoch:", np.round(jax.device_get(history), 3))
    print(f"test accuracy: {float(accuracy(state, xt, yt)):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            ('@partial(jax.jit, static_argnames="cfg")  # here', '@partial(jax.jit, static_argnames="cfg")'),
            ("def train_epoch(state, x, y, key, cfg):", "def train_epoch(state, x, y, key, smoothing, cfg):"),
            ("*batch, cfg)", "*batch, smoothing, cfg)"),
            (
                "def smoothed_loss(params, apply_fn, x, y, cfg):",
                "def smoothed_loss(params, apply_fn, x, y, smoothing, cfg):",
            ),
            ("cfg.n_classes), cfg.smoothing)", "cfg.n_classes), smoothing)"),
            (
                "epoch_cfg = replace(cfg, smoothing=cfg.smoothing * (1 - epoch / args.epochs))  # or here",
                "smoothing = jnp.float32(cfg.smoothing * (1 - epoch / args.epochs))",
            ),
            ("sub, epoch_cfg)  # or here", "sub, smoothing, cfg)"),
        ),
    ),
    Planted(
        "the GARCH recursion is a Python loop over 100 days inside the numpyro model, unrolled into the trace of NUTS",
        ("unrolled-loop",),
        '''\
"""Bayesian GARCH(1,1) volatility model of daily returns, sampled with NUTS (numpyro)."""
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive


def simulate_returns(seed, n, omega=0.05, alpha=0.12, beta=0.8):
    """Synthetic returns from the same process, made once on the host."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal(n)
    r = np.empty(n)
    var = omega / (1.0 - alpha - beta)
    for t in range(n):
        r[t] = np.sqrt(var) * z[t]
        var = omega + alpha * r[t] ** 2 + beta * var
    return r.astype(np.float32)


def conditional_variance(r2, omega, alpha, beta, var0):
    """Variance of each day given the squared returns of the days before."""
    var, out = var0, []
    for t in range(r2.shape[0]):  # here
        out.append(var)
        var = omega + alpha * r2[t] + beta * var
    return jnp.stack(out)


class Garch:
    """Callable model; `horizon` days are left out of the likelihood for evaluation."""

    def __init__(self, returns, horizon):
        self.train = jnp.asarray(returns[:-horizon])
        self.test = jnp.asarray(returns[-horizon:])
        self.var0 = jnp.var(self.train)

    def __call__(self, obs=None):
        mu = numpyro.sample("mu", dist.Normal(0.0, 0.1))
        omega = numpyro.sample("omega", dist.HalfNormal(0.2))
        split = numpyro.sample("split", dist.Dirichlet(jnp.array([1.5, 8.0, 1.0])))
        alpha, beta = split[0], split[1]
        resid2 = (self.train - mu) ** 2
        var = conditional_variance(resid2, omega, alpha, beta, self.var0)
        numpyro.deterministic("last_vol", jnp.sqrt(var[-1]))
        with numpyro.plate("days", self.train.shape[0]):
            numpyro.sample("r", dist.Normal(mu, jnp.sqrt(var)), obs=obs)


def report(samples):
    for name in ("mu", "omega", "split"):
        s = np.asarray(samples[name])
        print(f"{name:6s} mean {np.round(s.mean(0), 3)} sd {np.round(s.std(0), 3)}")


def main():
    model = Garch(simulate_returns(3, 130), horizon=30)
    key_mcmc, key_pred = jax.random.split(jax.random.key(1))
    mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, progress_bar=False)
    mcmc.run(key_mcmc, obs=model.train)
    samples = mcmc.get_samples()
    report(samples)
    pred = Predictive(model, samples, return_sites=["last_vol"])(key_pred)
    vol = np.asarray(pred["last_vol"])
    print(f"volatility of the last day: {vol.mean():.3f} ({vol.std():.3f})")
    print(f"realised volatility after it: {float(model.test.std()):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    var, out = var0, []\n    for t in range(r2.shape[0]):  # here\n        out.append(var)\n        var = omega + alpha * r2[t] + beta * var\n    return jnp.stack(out)\n",
                "    def step(var, r2_t):\n        return omega + alpha * r2_t + beta * var, var\n\n    return jax.lax.scan(step, var0, r2)[1]\n",
            ),
        ),
    ),
    Planted(
        "the batch is run through the RNN one wave at a time in a comprehension",
        ("python-loop-vmap",),
        '''\
"""Gated recurrent classifier of noisy waveforms (equinox + optax)."""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax


@dataclasses.dataclass
class Config:
    hidden: int = 32
    length: int = 60
    batch: int = 40
    epochs: int = 6
    n_train: int = 1200
    lr: float = 5e-3
    seed: int = 0


class WaveRNN(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, hidden, n_classes, *, key):
        k1, k2 = jr.split(key)
        self.cell = eqx.nn.GRUCell(1, hidden, key=k1)
        self.head = eqx.nn.Linear(hidden, n_classes, key=k2)

    def __call__(self, wave):
        def step(h, x):
            return self.cell(x[None], h), None

        h, _ = jax.lax.scan(step, jnp.zeros(self.cell.hidden_size), wave)
        return self.head(h)


def make_waves(rng, n, length):
    kind = rng.integers(0, 3, n)
    t = np.linspace(0, 4 * np.pi, length)[None] + rng.uniform(0, 2 * np.pi, (n, 1))
    sine, square, saw = np.sin(t), np.sign(np.sin(t)), (t / np.pi) % 2 - 1
    w = np.choose(kind[:, None], [sine, square, saw]) + 0.1 * rng.normal(size=t.shape)
    return jnp.asarray(w, jnp.float32), jnp.asarray(kind, jnp.int32)


def batch_logits(model, waves):
    return jnp.stack([model(w) for w in waves])  # here


def loss_fn(model, waves, kinds):
    logits = batch_logits(model, waves)
    return optax.softmax_cross_entropy_with_integer_labels(logits, kinds).mean()


@eqx.filter_jit
def run_epoch(model, opt_state, opt, waves, kinds, key, batch):
    idx = jr.permutation(key, waves.shape[0]).reshape(-1, batch)
    params, static = eqx.partition(model, eqx.is_array)

    def body(carry, i):
        params, opt_state = carry
        m = eqx.combine(params, static)
        loss, grads = eqx.filter_value_and_grad(loss_fn)(m, waves[i], kinds[i])
        updates, opt_state = opt.update(grads, opt_state, params)
        return (eqx.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), idx)
    return eqx.combine(params, static), opt_state, losses.mean()


@eqx.filter_jit
def accuracy(model, waves, kinds):
    return (jax.vmap(model)(waves).argmax(-1) == kinds).mean()


def main(cfg):
    rng = np.random.default_rng(cfg.seed)
    waves, kinds = make_waves(rng, cfg.n_train, cfg.length)
    test = make_waves(rng, 400, cfg.length)
    key, mkey = jr.split(jr.key(cfg.seed))
    model = WaveRNN(cfg.hidden, 3, key=mkey)
    opt = optax.adam(cfg.lr)
    opt_state = opt.init(eqx.filter(model, eqx.is_array))
    for epoch in range(cfg.epochs):
        key, sub = jr.split(key)
        model, opt_state, loss = run_epoch(model, opt_state, opt, waves, kinds, sub, cfg.batch)
        if epoch % 3 == 2:
            print(f"epoch {epoch}: loss {loss:.3f} test acc {accuracy(model, *test):.3f}")


if __name__ == "__main__":
    main(Config())
''',
        (("jnp.stack([model(w) for w in waves])  # here", "jax.vmap(model)(waves)"),),
    ),
    Planted(
        "blackjax's kernel.step is called in the sampling loop without jit",
        ("eager-operations",),
        '''\
"""Hierarchical logistic regression sampled with HMC (blackjax): warm-up, then a recorded chain."""
from typing import NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats


class Data(NamedTuple):
    x: jax.Array
    y: jax.Array
    group: jax.Array


def make_data(seed, n=4000, d=8, n_groups=12):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    group = rng.integers(0, n_groups, n)
    logits = x @ rng.normal(size=d) + rng.normal(size=n_groups)[group]
    y = rng.random(n) < 1 / (1 + np.exp(-logits))
    return Data(jnp.asarray(x), jnp.asarray(y, jnp.float32), jnp.asarray(group))


class Posterior:
    def __init__(self, data, n_groups):
        self.data = data
        self.n_groups = n_groups

    def initial(self):
        d = self.data.x.shape[1]
        return {"w": jnp.zeros(d), "b": jnp.zeros(self.n_groups), "log_tau": jnp.zeros(())}

    def logits(self, p):
        return self.data.x @ p["w"] + p["b"][self.data.group]

    def __call__(self, p):
        tau = jnp.exp(p["log_tau"])
        prior = stats.norm.logpdf(p["w"], 0.0, 2.0).sum()
        prior += stats.norm.logpdf(p["b"], 0.0, tau).sum()
        prior += stats.norm.logpdf(p["log_tau"], 0.0, 0.5)
        z = self.logits(p)
        return prior + jnp.sum(self.data.y * z - jax.nn.softplus(z))


def run_chain(key, kernel, state, n_warm, n_keep):
    """Returns the kept positions and the mean acceptance rate."""
    advance = kernel.step  # here
    kept, accept = [], []
    for i, k in enumerate(jax.random.split(key, n_warm + n_keep)):
        state, info = advance(k, state)  # or here
        if i >= n_warm:
            kept.append(state.position)
            accept.append(info.acceptance_rate)
    chain = jax.tree.map(lambda *leaves: jnp.stack(leaves), *kept)
    return chain, jnp.stack(accept).mean()


def main():
    data = make_data(0)
    posterior = Posterior(data, n_groups=12)
    start = posterior.initial()
    n_par = sum(leaf.size for leaf in jax.tree.leaves(start))
    kernel = blackjax.hmc(posterior, step_size=0.03, inverse_mass_matrix=jnp.ones(n_par),
                          num_integration_steps=8)
    chain, rate = run_chain(jax.random.key(0), kernel, kernel.init(start), n_warm=10, n_keep=20)
    print(f"acceptance {float(rate):.2f}")
    print("weights:", np.round(np.asarray(chain["w"].mean(0)), 2))
    print(f"tau: {float(jnp.exp(chain['log_tau']).mean()):.2f}")


if __name__ == "__main__":
    main()
''',
        (("advance = kernel.step  # here", "advance = jax.jit(kernel.step)"),),
    ),
    Planted(
        "the table stays a float64 NumPy array on the host and is converted and copied at each training step",
        ("numpy-inputs",),
        '''\
"""Full-batch training of a wide-and-shallow regressor on tabular data (flax.nnx + optax)."""
import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Tabular(nnx.Module):
    def __init__(self, d_in, width, rngs):
        self.hidden = nnx.Linear(d_in, width, rngs=rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(jnp.tanh(self.hidden(x)))[:, 0]


class Table:
    """Synthetic table with a nonlinear target; split into train and validation rows."""

    def __init__(self, n, d, seed):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, d))
        y = np.sin(x[:, 0]) + 0.5 * x[:, 1] * x[:, 2] + 0.1 * rng.normal(size=n)
        cut = int(0.9 * n)
        self.train = self._pack(x[:cut], y[:cut])
        self.valid = self._pack(x[cut:], y[cut:])

    @staticmethod
    def _pack(x, y):
        return {"x": x, "y": y}  # here


def loss_fn(model, table):
    return jnp.mean((model(table["x"]) - table["y"]) ** 2)


@nnx.jit
def train_step(model, optimizer, table):
    loss, grads = nnx.value_and_grad(loss_fn)(model, table)
    optimizer.update(model, grads)
    return loss


@nnx.jit
def evaluate(model, table):
    return loss_fn(model, table)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=200_000)
    ap.add_argument("--features", type=int, default=60)
    ap.add_argument("--steps", type=int, default=80)
    args = ap.parse_args()

    data = Table(args.rows, args.features, seed=0)
    model = Tabular(args.features, 8, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)

    t0 = time.perf_counter()
    losses = []
    for step in range(args.steps):
        losses.append(train_step(model, optimizer, data.train))  # or here
    losses = jnp.stack(losses).block_until_ready()
    print(f"{args.steps} steps in {time.perf_counter() - t0:.1f} s")

    print(f"train loss {float(losses[0]):.3f} -> {float(losses[-1]):.3f}")
    print(f"validation loss {float(evaluate(model, data.valid)):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                'return {"x": x, "y": y}  # here',
                'return {"x": jnp.asarray(x, jnp.float32), "y": jnp.asarray(y, jnp.float32)}',
            ),
        ),
    ),
    Planted(
        "a debugging callback in the vector field counts evaluations on the host at every stage of the solver",
        ("host-callback",),
        '''\
"""Fit the rates of a predator-prey model to noisy observations (diffrax + equinox + optax)."""
import dataclasses
from typing import Callable

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class FitConfig:
    t1: float = 12.0
    n_obs: int = 40
    steps: int = 300
    lr: float = 0.03
    rtol: float = 1e-5


class EvalCounter:
    """Counts evaluations of the vector field on the host."""

    def __init__(self):
        self.n = 0

    def bump(self, t):
        self.n += 1


COUNTER = EvalCounter()


class Rates(eqx.Module):
    log_theta: jax.Array
    squash: Callable = eqx.field(static=True, default=jnp.exp)

    def __call__(self, t, y, args):
        a, b, c, d = self.squash(self.log_theta)
        prey, pred = y
        jax.debug.callback(COUNTER.bump, t)  # here
        return jnp.stack([a * prey - b * prey * pred, d * prey * pred - c * pred])


class Problem(eqx.Module):
    ts: jax.Array
    ys: jax.Array
    y0: jax.Array
    rtol: float = eqx.field(static=True)

    def solve(self, rates):
        return dfx.diffeqsolve(
            dfx.ODETerm(rates), dfx.Tsit5(), 0.0, self.ts[-1], 0.05, self.y0,
            saveat=dfx.SaveAt(ts=self.ts), max_steps=512,
            stepsize_controller=dfx.PIDController(rtol=self.rtol, atol=self.rtol),
        )

    def loss(self, rates):
        sol = self.solve(rates)
        return jnp.mean((jnp.log(sol.ys) - jnp.log(self.ys)) ** 2)


@eqx.filter_jit
def fit_step(rates, opt_state, problem, opt):
    loss, grads = eqx.filter_value_and_grad(problem.loss)(rates)
    updates, opt_state = opt.update(grads, opt_state, rates)
    return eqx.apply_updates(rates, updates), opt_state, loss


def observe(cfg, truth, key):
    ts = jnp.linspace(0.0, cfg.t1, cfg.n_obs)
    y0 = jnp.array([2.0, 1.0])
    blank = Problem(ts, jnp.ones((cfg.n_obs, 2)), y0, cfg.rtol)
    clean = eqx.filter_jit(blank.solve)(truth).ys
    noise = 0.05 * jax.random.normal(key, clean.shape)
    return Problem(ts, clean * jnp.exp(noise), y0, cfg.rtol)


def main():
    cfg = FitConfig()
    theta = jnp.array([1.1, 0.5, 0.9, 0.4])
    problem = observe(cfg, Rates(jnp.log(theta)), jax.random.key(0))
    rates = Rates(jnp.log(theta) + 0.3 * jnp.array([1.0, -1.0, 1.0, -1.0]))
    opt = optax.adam(cfg.lr)
    opt_state = opt.init(eqx.filter(rates, eqx.is_array))
    losses = []
    for _ in range(cfg.steps):
        rates, opt_state, loss = fit_step(rates, opt_state, problem, opt)
        losses.append(loss)
    losses = np.asarray(jax.device_get(losses))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    print("rates:", np.round(np.exp(np.asarray(rates.log_theta)), 3), "true:", np.asarray(theta))
    print("vector field evaluations seen:", COUNTER.n)


if __name__ == "__main__":
    main()
''',
        (("        jax.debug.callback(COUNTER.bump, t)  # here\n", ""),),
    ),
    Planted(
        "the Mahalanobis distances are the diagonal of a full N x N product",
        ("diagonal-matmul",),
        '''\
"""Gaussian mixture fitted by EM, with full covariances."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Mixture(NamedTuple):
    log_weight: jax.Array  # (k,)
    mean: jax.Array        # (k, d)
    cov: jax.Array         # (k, d, d)


def make_clusters(seed, n, d, k):
    rng = np.random.default_rng(seed)
    centre = 4.0 * rng.normal(size=(k, d))
    label = rng.integers(0, k, n)
    shape = rng.normal(size=(k, d, d)) / np.sqrt(d)
    x = centre[label] + np.einsum("nij,nj->ni", shape[label], rng.normal(size=(n, d)))
    return jnp.asarray(x, jnp.float32), label


def start(key, x, k):
    n, d = x.shape
    mean = x[jax.random.randint(key, (k,), 0, n)]
    return Mixture(jnp.full(k, -jnp.log(k)), mean, jnp.tile(jnp.cov(x.T)[None], (k, 1, 1)))


def log_density(x, mean, cov):
    """Log density of every row of x under one component."""
    d = x.shape[1]
    resid = x - mean
    chol = jnp.linalg.cholesky(cov)
    precision = jax.scipy.linalg.cho_solve((chol, True), jnp.eye(d))
    maha = jnp.diag(resid @ precision @ resid.T)  # here
    logdet = 2.0 * jnp.log(jnp.diag(chol)).sum()
    return -0.5 * (maha + logdet + d * jnp.log(2 * jnp.pi))


def responsibilities(mix, x):
    def component(_, part):
        return None, log_density(x, *part)

    _, logp = jax.lax.scan(component, None, (mix.mean, mix.cov))
    joint = logp + mix.log_weight[:, None]
    total = jax.nn.logsumexp(joint, axis=0)
    return jnp.exp(joint - total), total.mean()


def m_step(x, resp, ridge):
    n, d = x.shape
    mass = resp.sum(1) + 1e-6
    mean = (resp @ x) / mass[:, None]

    def cov(r, m, s):
        c = x - m
        return (c * r[:, None]).T @ c / s + ridge * jnp.eye(d)

    covs = jax.lax.map(lambda a: cov(*a), (resp, mean, mass))
    return Mixture(jnp.log(mass / n), mean, covs)


@jax.jit
def em(mix, x, ridge):
    def body(mix, _):
        resp, ll = responsibilities(mix, x)
        return m_step(x, resp, ridge), ll

    return jax.lax.scan(body, mix, length=25)


@jax.jit
def assign(mix, x):
    return responsibilities(mix, x)[0].argmax(0)


def purity(found, label):
    table = np.zeros((found.max() + 1, label.max() + 1), int)
    np.add.at(table, (found, label), 1)
    return table.max(1).sum() / len(label)


def main(k=6, d=12, n=5000):
    x, label = make_clusters(0, n, d, k)
    best = None
    for key in jax.random.split(jax.random.key(1), 3):
        mix, lls = em(start(key, x, k), x, 1e-3)
        final = float(lls[-1])
        print(f"restart: log likelihood {final:.3f}")
        if best is None or final > best[0]:
            best = (final, mix)
    found = np.asarray(assign(best[1], x))
    print(f"purity of the best mixture: {purity(found, label):.3f}")


if __name__ == "__main__":
    main()
''',
        (("jnp.diag(resid @ precision @ resid.T)  # here", "jnp.sum((resid @ precision) * resid, axis=1)"),),
    ),
    Planted(
        "the whole Hessian of the network is built for a Hessian-vector product in a power iteration",
        ("hessian-vector",),
        '''\
"""Regression with an equinox MLP; after each epoch the sharpness (largest curvature) is logged."""
import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jax.flatten_util import ravel_pytree


def make_data(key, n):
    kx, ke = jr.split(key)
    x = jr.uniform(kx, (n, 4), minval=-2.0, maxval=2.0)
    y = jnp.sin(x[:, 0]) * x[:, 1] + jnp.abs(x[:, 2]) + 0.05 * jr.normal(ke, (n,))
    return x, y


def mse(model, x, y):
    return jnp.mean((jax.vmap(model)(x)[:, 0] - y) ** 2)


class Sharpness:
    """Largest eigenvalue of the curvature of the loss on a fixed probe batch (power iteration)."""

    def __init__(self, x, y, iterations=15):
        self.x, self.y = x, y
        self.iterations = iterations

    def __call__(self, model, key):
        return self._run(model, self.x, self.y, key, self.iterations)

    @staticmethod
    @eqx.filter_jit
    def _run(model, x, y, key, iterations):
        params, static = eqx.partition(model, eqx.is_inexact_array)
        flat, unravel = ravel_pytree(params)

        def objective(w):
            return mse(eqx.combine(unravel(w), static), x, y)

        def curvature(v):
            return jax.hessian(objective)(flat) @ v  # here

        def body(_, carry):
            v, _ = carry
            hv = curvature(v)
            return hv / jnp.linalg.norm(hv), v @ hv

        v0 = jr.normal(key, flat.shape)
        v0 = v0 / jnp.linalg.norm(v0)
        return jax.lax.fori_loop(0, iterations, body, (v0, jnp.zeros(())))[1]


@eqx.filter_jit
def train_epoch(model, opt_state, x, y, key, opt, batch):
    params, static = eqx.partition(model, eqx.is_inexact_array)
    order = jr.permutation(key, x.shape[0]).reshape(-1, batch)

    def body(carry, idx):
        params, opt_state = carry
        loss, grads = eqx.filter_value_and_grad(
            lambda p: mse(eqx.combine(p, static), x[idx], y[idx]))(params)
        updates, opt_state = opt.update(grads, opt_state, params)
        return (eqx.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), order)
    return eqx.combine(params, static), opt_state, losses.mean()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=6)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--width", type=int, default=32)
    args = ap.parse_args()

    kdata, ktest, kmodel, ktrain = jr.split(jr.key(0), 4)
    x, y = make_data(kdata, 4096)
    test = make_data(ktest, 1024)
    model = eqx.nn.MLP(4, 1, args.width, 2, activation=jnp.tanh, key=kmodel)
    opt = optax.adam(5e-3)
    opt_state = opt.init(eqx.filter(model, eqx.is_inexact_array))
    sharpness = Sharpness(x[:256], y[:256])

    log = []
    for epoch_key in jr.split(ktrain, args.epochs):
        k1, k2 = jr.split(epoch_key)
        model, opt_state, loss = train_epoch(model, opt_state, x, y, k1, opt, args.batch)
        log.append(jnp.stack([loss, sharpness(model, k2)]))
    for loss, sharp in np.asarray(jnp.stack(log)):
        print(f"train loss {loss:.4f}  sharpness {sharp:.2f}")
    print(f"test loss {float(eqx.filter_jit(mse)(model, *test)):.4f}")


if __name__ == "__main__":
    main()
''',
        (("jax.hessian(objective)(flat) @ v  # here", "jax.jvp(jax.grad(objective), (flat,), (v,))[1]"),),
    ),
    Planted(
        "the step counter on self is incremented inside the jitted method: it runs once, at trace time, so the learning rate stays at that of the first warm-up step",
        ("impure-function",),
        '''\
"""Train a small linen network with a hand-written warm-up and decay of the learning rate."""
import argparse
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Net(nn.Module):
    features: tuple = (64, 64)

    @nn.compact
    def __call__(self, x):
        for f in self.features:
            x = nn.tanh(nn.Dense(f)(x))
        return nn.Dense(1)(x)[..., 0]


class WarmupTrainer:
    """Momentum SGD; the rate rises for `warmup` steps and then decays as 1/sqrt(step)."""

    def __init__(self, model, peak, warmup):
        self.model = model
        self.peak = peak
        self.warmup = warmup
        self.count = 0
        self.trace = optax.trace(decay=0.9, nesterov=True)

    def init(self, key, x):
        params = self.model.init(key, x)
        return params, self.trace.init(params)

    def rate(self, count):
        count = jnp.asarray(count, jnp.float32)
        return self.peak * jnp.minimum(count / self.warmup, jnp.sqrt(self.warmup / count))

    def loss(self, params, x, y):
        return jnp.mean((self.model.apply(params, x) - y) ** 2)

    @partial(jax.jit, static_argnums=0)
    def step(self, params, opt_state, x, y):
        self.count += 1  # here
        loss, grads = jax.value_and_grad(self.loss)(params, x, y)
        direction, opt_state = self.trace.update(grads, opt_state, params)
        lr = self.rate(self.count)  # or here
        params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
        return params, opt_state, loss

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, params, x, y):
        return self.loss(params, x, y)


def make_data(rng, n):
    x = rng.uniform(-1, 1, (n, 5)).astype(np.float32)
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - x[:, 3] ** 2
    return jnp.asarray(x), jnp.asarray(y, jnp.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=900)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    rng = np.random.default_rng(args.seed)
    x, y = make_data(rng, 2048)
    xt, yt = make_data(rng, 1024)
    trainer = WarmupTrainer(Net(), peak=0.1, warmup=100)
    params, opt_state = trainer.init(jax.random.key(args.seed), x[:1])
    losses = []
    for _ in range(args.steps):
        params, opt_state, loss = trainer.step(params, opt_state, x, y)
        losses.append(loss)
    curve = np.asarray(jax.device_get(losses))
    for i in range(0, args.steps, 300):
        print(f"step {i}: loss {curve[i]:.4f}")
    print(f"final test loss {float(trainer.evaluate(params, xt, yt)):.5f}")


if __name__ == "__main__":
    main()
''',
        (
            ("        self.count += 1  # here\n", ""),
            ("def step(self, params, opt_state, x, y):", "def step(self, params, opt_state, count, x, y):"),
            ("lr = self.rate(self.count)  # or here", "lr = self.rate(count)"),
            ("for _ in range(args.steps):", "for i in range(args.steps):"),
            ("trainer.step(params, opt_state, x, y)", "trainer.step(params, opt_state, i + 1, x, y)"),
        ),
        is_about_results=True,
    ),
    Planted(
        "the accept/reject decision of Metropolis is a Python if on a device value, so the host waits at each of 16000 steps",
        ("implicit-transfers",),
        '''\
"""Random-walk Metropolis for the frailty parameters of a survival model."""
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Survival(NamedTuple):
    x: jax.Array       # covariates
    time: jax.Array    # observed or censoring time
    event: jax.Array   # 1 where the event was seen


def make_data(seed, n=300, d=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    rate = np.exp(-0.5 + x @ np.linspace(-0.6, 0.8, d))
    t = rng.weibull(1.4, n) / rate
    c = rng.exponential(3.0, n)
    pack = lambda a: jnp.asarray(a, jnp.float32)
    return Survival(pack(x), pack(np.minimum(t, c)), pack(t <= c))


@jax.jit
def log_posterior(theta, data):
    """Weibull regression; theta = (log shape, intercept, coefficients)."""
    shape = jnp.exp(theta[0])
    log_rate = theta[1] + data.x @ theta[2:]
    log_h = jnp.log(shape) + shape * log_rate + (shape - 1.0) * jnp.log(data.time)
    cum = (data.time * jnp.exp(log_rate)) ** shape
    return jnp.sum(data.event * log_h - cum) - 0.5 * jnp.sum(theta**2) / 4.0


@jax.jit
def propose(key, theta, lp, chol, data):
    """A candidate, its log density, and whether it is to be taken."""
    k_step, k_accept = jax.random.split(key)
    cand = theta + chol @ jax.random.normal(k_step, theta.shape)
    cand_lp = log_posterior(cand, data)
    return cand, cand_lp, jnp.log(jax.random.uniform(k_accept)) < cand_lp - lp


class Chain:
    def __init__(self, data, dim, scale, thin=20):
        self.data = data
        self.thin = thin
        self.chol = scale * jnp.eye(dim)

    def run(self, keys, theta):
        lp = log_posterior(theta, self.data)
        thetas, n_accept = [], 0
        for i, key in enumerate(keys):
            cand, cand_lp, take = propose(key, theta, lp, self.chol, self.data)
            if take:  # here
                theta, lp = cand, cand_lp
                n_accept += 1
            if i % self.thin == 0:
                thetas.append(theta)
        return jnp.stack(thetas), n_accept / len(keys)

    def adapt(self, trace):
        """Proposal covariance from the trace so far (Haario et al.)."""
        dim = trace.shape[1]
        cov = jnp.cov(trace.T) + 1e-6 * jnp.eye(dim)
        self.chol = jnp.linalg.cholesky(cov) * 2.38 / math.sqrt(dim)


def main(n_warm=6000, n_keep=20000):
    data = make_data(0)
    dim = data.x.shape[1] + 2
    chain = Chain(data, dim, scale=0.05)
    keys = jax.random.split(jax.random.key(2), n_warm + n_keep)
    warm, rate = chain.run(keys[:n_warm], jnp.zeros(dim))
    print(f"warm-up acceptance {rate:.2f}")
    chain.adapt(warm[len(warm) // 2:])
    trace, rate = chain.run(keys[n_warm:], warm[-1])
    print(f"acceptance {rate:.2f}")
    print("mean:", np.round(np.asarray(trace.mean(0)), 3))
    print("sd:  ", np.round(np.asarray(trace.std(0)), 3))


if __name__ == "__main__":
    main()
''',
        (
            (
                "        thetas, n_accept = [], 0\n        for i, key in enumerate(keys):\n            cand, cand_lp, take = propose(key, theta, lp, self.chol, self.data)\n            if take:  # here\n                theta, lp = cand, cand_lp\n                n_accept += 1\n            if i % self.thin == 0:\n                thetas.append(theta)\n        return jnp.stack(thetas), n_accept / len(keys)\n",
                "        (_, _), (trace, taken) = sweep(keys, theta, lp, self.chol, self.data)\n        return trace[:: self.thin], float(taken.mean())\n",
            ),
            (
                "class Chain:",
                "@jax.jit\ndef sweep(keys, theta, lp, chol, data):\n    def body(carry, key):\n        theta, lp = carry\n        cand, cand_lp, take = propose(key, theta, lp, chol, data)\n        theta, lp = jnp.where(take, cand, theta), jnp.where(take, cand_lp, lp)\n        return (theta, lp), (theta, take)\n\n    return jax.lax.scan(body, (theta, lp), keys)\n\n\nclass Chain:",
            ),
        ),
    ),
    Planted(
        "the replay log is kept as deques of lists of Python floats and turned into arrays at each round",
        ("python-lists",),
        '''\
"""Advantage regression on logged episodes: a critic learns discounted returns (optax)."""
import argparse
from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import optax


class EpisodeLog:
    """Ring buffer of transitions as a simulator writes them, one at a time."""

    def __init__(self, capacity):
        self.obs = deque(maxlen=capacity)
        self.reward = deque(maxlen=capacity)

    def __len__(self):
        return len(self.reward)

    def add(self, obs, reward):
        self.obs.append([float(v) for v in obs])
        self.reward.append(float(reward))

    def snapshot(self):
        return jnp.array(list(self.obs)), jnp.array(list(self.reward))  # here


class Simulator:
    """Cheap stand-in for an environment: a damped noisy oscillator seen through random features."""

    def __init__(self, seed, n_obs):
        self.rng = np.random.default_rng(seed)
        self.mix = self.rng.normal(size=(n_obs, 2))
        self.state = np.array([1.0, 0.0])
        self.matrix = np.array([[0.995, 0.1], [-0.1, 0.995]]) * 0.999

    def rollout(self, n):
        noise = self.rng.normal(size=(n, 2)) * 0.05
        for e in noise:
            self.state = self.matrix @ self.state + e
            yield self.mix @ self.state, self.state[0]


def init_critic(key, n_obs, width):
    k1, k2 = jax.random.split(key)
    return {
        "w1": jax.random.normal(k1, (n_obs, width)) / jnp.sqrt(n_obs),
        "b1": jnp.zeros(width),
        "w2": jax.random.normal(k2, (width,)) / jnp.sqrt(width),
    }


def critic(p, obs):
    return jnp.tanh(obs @ p["w1"] + p["b1"]) @ p["w2"]


opt = optax.adam(1e-3)


@jax.jit
def learn(params, opt_state, obs, reward, gamma):
    """A few fitted-value steps on everything in the log."""

    def loss_fn(p, target):
        return jnp.mean((critic(p, obs[:-1]) - target) ** 2)

    def body(carry, _):
        params, opt_state = carry
        target = reward[:-1] + gamma * critic(params, obs[1:])
        loss, grads = jax.value_and_grad(loss_fn)(params, target)
        updates, opt_state = opt.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), length=4)
    return params, opt_state, losses[-1]


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--capacity", type=int, default=12_000)
    ap.add_argument("--rounds", type=int, default=15)
    ap.add_argument("--n-obs", type=int, default=24)
    args = ap.parse_args()
    sim = Simulator(0, args.n_obs)
    log = EpisodeLog(args.capacity)
    for obs, reward in sim.rollout(args.capacity):
        log.add(obs, reward)
    params = init_critic(jax.random.key(0), args.n_obs, 16)
    opt_state = opt.init(params)
    losses = []
    for _ in range(args.rounds):
        for obs, reward in sim.rollout(200):
            log.add(obs, reward)
        params, opt_state, loss = learn(params, opt_state, *log.snapshot(), 0.97)
        losses.append(loss)
    losses = np.asarray(jax.device_get(losses))
    print(f"{len(log)} transitions, TD loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        self.obs = deque(maxlen=capacity)\n        self.reward = deque(maxlen=capacity)\n",
                "        self.obs, self.reward, self.n = None, np.zeros(capacity, np.float32), 0\n",
            ),
            ("return len(self.reward)", "return min(self.n, len(self.reward))"),
            (
                "        self.obs.append([float(v) for v in obs])\n        self.reward.append(float(reward))\n",
                "        if self.obs is None:\n            self.obs = np.zeros((len(self.reward), len(obs)), np.float32)\n        i = self.n % len(self.reward)\n        self.obs[i], self.reward[i], self.n = obs, reward, self.n + 1\n",
            ),
            (
                "return jnp.array(list(self.obs)), jnp.array(list(self.reward))  # here",
                "i = self.n % len(self.reward)\n        return jnp.array(np.roll(self.obs, -i, 0)), jnp.array(np.roll(self.reward, -i))",
            ),
        ),
    ),
    Planted(
        "the recorder writes each frame with .at[].set outside jit, which copies the whole history at each step",
        ("copied-updates",),
        '''\
"""Gray-Scott reaction-diffusion on a periodic grid; frames are kept for later analysis."""
import argparse
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class GrayScott:
    feed: float = 0.037
    kill: float = 0.06
    du: float = 0.16
    dv: float = 0.08
    substeps: int = 8


def laplacian(a):
    return (jnp.roll(a, 1, 0) + jnp.roll(a, -1, 0) + jnp.roll(a, 1, 1) + jnp.roll(a, -1, 1)
            - 4.0 * a)


@partial(jax.jit, static_argnames="p")
def advance(u, v, p):
    def body(_, uv):
        u, v = uv
        react = u * v * v
        u = u + p.du * laplacian(u) - react + p.feed * (1.0 - u)
        v = v + p.dv * laplacian(v) + react - (p.feed + p.kill) * v
        return u, v

    return jax.lax.fori_loop(0, p.substeps, body, (u, v))


class Recorder:
    """Keeps one frame per outer step in a single array."""

    def __init__(self, n_frames, shape):
        self.frames = jnp.zeros((n_frames, *shape), jnp.float32)
        self.filled = 0

    def write(self, frame):
        self.frames = self.frames.at[self.filled].set(frame)  # here
        self.filled += 1

    def result(self):
        return self.frames[: self.filled]


def initial(key, n):
    v = jnp.zeros((n, n)).at[n // 2 - 8:n // 2 + 8, n // 2 - 8:n // 2 + 8].set(0.5)
    v = v + 0.02 * jax.random.uniform(key, (n, n))
    return 1.0 - v, v


@jax.jit
def summarise(frames):
    flat = frames.reshape(frames.shape[0], -1)
    return {"mean": flat.mean(1), "contrast": flat.std(1), "wet": (flat > 0.1).mean(1)}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--size", type=int, default=192)
    ap.add_argument("--frames", type=int, default=280)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()

    model = GrayScott()
    u, v = initial(jax.random.key(args.seed), args.size)
    recorder = Recorder(args.frames, v.shape)
    for _ in range(args.frames):
        u, v = advance(u, v, model)
        recorder.write(v)
    stats = jax.device_get(summarise(recorder.result()))
    for i in range(0, args.frames, args.frames // 4):
        print(f"frame {i:4d}  " + "  ".join(f"{k} {s[i]:.4f}" for k, s in stats.items()))
    assert np.isfinite(stats["mean"]).all()


if __name__ == "__main__":
    main()
''',
        (
            (
                "        self.frames = jnp.zeros((n_frames, *shape), jnp.float32)\n        self.filled = 0\n",
                "        self.frames = []\n",
            ),
            (
                "        self.frames = self.frames.at[self.filled].set(frame)  # here\n        self.filled += 1\n",
                "        self.frames.append(frame)\n",
            ),
            ("return self.frames[: self.filled]", "return jnp.stack(self.frames)"),
        ),
    ),
    Planted(
        "the batch is drawn with random.choice(replace=False), which permutes all pairs for 512 indices at every step",
        ("permuted-draw",),
        '''\
"""Word2vec-like skip-gram embeddings on a synthetic corpus (flax.linen, optax)."""
import dataclasses
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 2000
    dim: int = 32
    n_pairs: int = 100_000
    batch: int = 512
    negatives: int = 8
    steps_per_epoch: int = 50
    epochs: int = 2


class SkipGram(nn.Module):
    vocab: int
    dim: int

    def setup(self):
        self.centre = nn.Embed(self.vocab, self.dim)
        self.context = nn.Embed(self.vocab, self.dim)

    def __call__(self, c, pos, neg):
        e = self.centre(c)
        s_pos = jnp.einsum("bd,bd->b", e, self.context(pos))
        s_neg = jnp.einsum("bd,bkd->bk", e, self.context(neg))
        return s_pos, s_neg


class Sampler:
    """Draws the pairs and the negatives of one batch."""

    def __init__(self, n_pairs, batch, negatives, vocab):
        self.n_pairs, self.batch = n_pairs, batch
        self.negatives, self.vocab = negatives, vocab

    def __call__(self, key, pairs):
        k_idx, k_neg = jax.random.split(key)
        idx = jax.random.choice(k_idx, self.n_pairs, (self.batch,), replace=False)  # here
        neg = jax.random.randint(k_neg, (self.batch, self.negatives), 0, self.vocab)
        return pairs[idx, 0], pairs[idx, 1], neg


def make_epoch(model, tx, sampler, n_steps):
    def loss_fn(params, batch):
        s_pos, s_neg = model.apply(params, *batch)
        return -(jax.nn.log_sigmoid(s_pos) + jax.nn.log_sigmoid(-s_neg).sum(1)).mean()

    @jax.jit
    def epoch(params, opt_state, pairs, key):
        def body(carry, k):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, sampler(k, pairs))
            updates, opt_state = tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        carry, losses = jax.lax.scan(body, (params, opt_state), jax.random.split(key, n_steps))
        return *carry, losses.mean()

    return epoch


def synthetic_pairs(cfg, seed=0):
    """Words of the same topic (mod 20) co-occur."""
    rng = np.random.default_rng(seed)
    centre = rng.integers(0, cfg.vocab, cfg.n_pairs)
    other = (centre + 20 * rng.integers(0, cfg.vocab // 20, cfg.n_pairs)) % cfg.vocab
    return jnp.asarray(np.stack([centre, other], 1), jnp.int32)


@partial(jax.jit, static_argnames="topics")
def topic_score(table, topics):
    unit = table / jnp.linalg.norm(table, axis=1, keepdims=True)
    sim = unit @ unit.T
    same = (jnp.arange(sim.shape[0])[:, None] - jnp.arange(sim.shape[0])) % topics == 0
    return sim.mean(where=same) - sim.mean(where=~same)


def main(cfg=Config()):
    pairs = synthetic_pairs(cfg)
    model = SkipGram(cfg.vocab, cfg.dim)
    key, k_init = jax.random.split(jax.random.key(0))
    zeros = jnp.zeros(2, jnp.int32)
    params = model.init(k_init, zeros, zeros, jnp.zeros((2, cfg.negatives), jnp.int32))
    tx = optax.adam(2e-2)
    opt_state = tx.init(params)
    sampler = Sampler(cfg.n_pairs, cfg.batch, cfg.negatives, cfg.vocab)
    epoch = make_epoch(model, tx, sampler, cfg.steps_per_epoch)
    for k in jax.random.split(key, cfg.epochs):
        params, opt_state, loss = epoch(params, opt_state, pairs, k)
        print(f"loss {float(loss):.4f}")
    table = params["params"]["centre"]["embedding"]
    print(f"topic score {float(topic_score(table, 20)):.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "jax.random.choice(k_idx, self.n_pairs, (self.batch,), replace=False)  # here",
                "jax.random.randint(k_idx, (self.batch,), 0, self.n_pairs)",
            ),
        ),
    ),
    Planted(
        "a vmapped lax.cond becomes a select: the costly fine integration runs for all particles, though few need it",
        ("vmapped-cond",),
        '''\
"""Stochastic tracking of charged particles; the few that come near the core are integrated finely."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Beam(NamedTuple):
    pos: jax.Array
    vel: jax.Array


CORE = 0.35
DT = 0.02


def field(pos):
    """Acceleration: a soft central pull and a uniform swirl."""
    r2 = jnp.sum(pos**2) + 1e-4
    pull = -pos / r2**1.5 * 0.05
    return pull + 0.1 * jnp.array([-pos[1], pos[0], 0.0])


def coarse_step(p):
    vel = p.vel + DT * field(p.pos)
    return Beam(p.pos + DT * vel, vel)


def fine_step(p, substeps=400):
    """The same interval by RK4 with many substeps; needed near the core only."""
    h = DT / substeps

    def rhs(s):
        return Beam(s.vel, field(s.pos))

    def axpy(s, k, a):
        return jax.tree.map(lambda x, y: x + a * y, s, k)

    def body(_, s):
        k1 = rhs(s)
        k2 = rhs(axpy(s, k1, h / 2))
        k3 = rhs(axpy(s, k2, h / 2))
        k4 = rhs(axpy(s, k3, h))
        return jax.tree.map(lambda x, a, b, c, d: x + h / 6 * (a + 2 * b + 2 * c + d),
                            s, k1, k2, k3, k4)

    return jax.lax.fori_loop(0, substeps, body, p)


def move(p):
    near = jnp.sum(p.pos**2) < CORE**2
    return jax.lax.cond(near, fine_step, coarse_step, p)


@jax.jit
def track(beam, n_steps):
    def body(_, carry):
        beam, hits = carry
        beam = jax.vmap(move)(beam)  # here
        near = jnp.sum(beam.pos**2, axis=1) < CORE**2
        return beam, hits + near.sum()

    return jax.lax.fori_loop(0, n_steps, body, (beam, jnp.zeros((), jnp.int32)))


def launch(key, n):
    k1, k2 = jax.random.split(key)
    pos = 2.0 * jax.random.normal(k1, (n, 3))
    return Beam(pos, 0.3 * jax.random.normal(k2, (n, 3)))


@jax.jit
def diagnostics(beam):
    r = jnp.linalg.norm(beam.pos, axis=1)
    return {"r_mean": r.mean(), "r_max": r.max(), "v_rms": jnp.sqrt((beam.vel**2).sum(1).mean())}


def main(n=2600, n_blocks=3, steps_per_block=60):
    beam = launch(jax.random.key(0), n)
    for block in range(n_blocks):
        beam, hits = track(beam, steps_per_block)
        d = jax.device_get(diagnostics(beam))
        print(f"block {block}: near the core {int(hits) / steps_per_block:.1f} per step, "
              + ", ".join(f"{k} {v:.3f}" for k, v in d.items()))
    assert np.isfinite(d["r_max"])


if __name__ == "__main__":
    main()
''',
        (("jax.vmap(move)(beam)  # here", "jax.lax.map(move, beam)"),),
    ),
    Planted(
        "the tall Jacobian (1600 residuals, 8 parameters) is taken in reverse mode",
        ("derivative-mode",),
        '''\
"""Levenberg-Marquardt fit of a sum of damped oscillations to a long record."""
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class FitOptions:
    max_iter: int = 30
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
        return res(p), jax.jacrev(res)(p)  # here

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


def main(n=1600, n_records=4):
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
''',
        (("jax.jacrev(res)(p)  # here", "jax.jacfwd(res)(p)"),),
    ),
)
