"""Programs without a pitfall, by the authors of `newcomers.py`."""

from __future__ import annotations

NEWCOMERS_CLEAN = {
    "Image-like classification with flax.linen: train in epochs by lax.scan, evaluate per epoch": '''\
"""Image-like classification with flax.linen: train in epochs by lax.scan, evaluate per epoch."""
import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

CLASSES = 10


class Mixer(nn.Module):
    width: int
    blocks: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.blocks):
            h = nn.gelu(nn.Dense(self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(h)
        return nn.Dense(CLASSES)(x.mean(1))


def make_data(key, n):
    k_label, k_noise = jax.random.split(key)
    labels = jax.random.randint(k_label, (n,), 0, CLASSES)
    t = jnp.linspace(0.0, 1.0, 16 * 12).reshape(16, 12)
    waves = jnp.sin((1.0 + labels[:, None, None]) * 3.0 * t)
    return waves + 0.8 * jax.random.normal(k_noise, waves.shape), labels


def loss_fn(params, apply_fn, x, y):
    logits = apply_fn({"params": params}, x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def make_epoch(batch, steps):
    @jax.jit
    def epoch(state, key, xs, ys):
        order = jax.random.permutation(key, xs.shape[0])[: batch * steps].reshape(steps, batch)

        def body(state, idx):
            loss, grads = jax.value_and_grad(loss_fn)(state.params, state.apply_fn, xs[idx], ys[idx])
            return state.apply_gradients(grads=grads), loss

        state, losses = jax.lax.scan(body, state, order)
        return state, losses.mean()

    return epoch


@jax.jit
def evaluate(state, xs, ys):
    logits = state.apply_fn({"params": state.params}, xs)
    return jnp.mean(jnp.argmax(logits, -1) == ys)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--n", type=int, default=4480)
    args = p.parse_args()
    k_train, k_test, k_init, k_loop = jax.random.split(jax.random.key(0), 4)
    xs, ys = make_data(k_train, args.n)
    test_x, test_y = make_data(k_test, 1000)
    model = Mixer(width=48)
    params = model.init(k_init, xs[:1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    epoch = make_epoch(args.batch, args.n // args.batch)
    for e, key in enumerate(jax.random.split(k_loop, args.epochs)):
        state, loss = epoch(state, key, xs, ys)
        acc = evaluate(state, test_x, test_y)
        print(f"epoch {e}: loss {float(loss):.4f} test accuracy {float(acc):.3f}")


if __name__ == "__main__":
    main()
''',
    "Compare ways to apply a Toeplitz operator; the timings warm up and wait": '''\
"""Compare ways to apply a Toeplitz operator; the timings warm up and wait."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

SIZE, REPEATS = 2048, 500


def dense(kernel, x):
    n = x.shape[-1]
    idx = jnp.arange(n)[:, None] - jnp.arange(n)[None, :]
    matrix = jnp.where(idx >= 0, kernel[jnp.abs(idx)], 0.0)
    return x @ matrix.T


def fourier(kernel, x):
    n = x.shape[-1]
    spec = jnp.fft.rfft(kernel, 2 * n) * jnp.fft.rfft(x, 2 * n, axis=-1)
    return jnp.fft.irfft(spec, 2 * n, axis=-1)[..., :n]


def recursive(decay, x):
    """For an exponential kernel the operator is a first-order recurrence."""

    def combine(left, right):
        a, b = left
        c, d = right
        return a * c, b * c + d

    coeff = jnp.full_like(x, decay)
    return jax.lax.associative_scan(combine, (coeff, x), axis=-1)[1]


def timed(fn, *args):
    fn = jax.jit(fn)
    result = jax.block_until_ready(fn(*args))
    took = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        took.append(time.perf_counter() - start)
    return result, np.median(took)


def main():
    decay = 0.995
    kernel = decay ** jnp.arange(SIZE, dtype=jnp.float32)
    x = jax.random.normal(jax.random.key(0), (64, SIZE))
    candidates = {
        "dense": functools.partial(dense, kernel),
        "fourier": functools.partial(fourier, kernel),
        "recursive": functools.partial(recursive, decay),
    }
    reference = None
    for name, fn in candidates.items():
        y, seconds = timed(fn, x)
        reference = y if reference is None else reference
        gap = float(jnp.max(jnp.abs(y - reference)))
        print(f"{name:10s} {1e3 * seconds:8.2f} ms  largest difference {gap:.1e}")


if __name__ == "__main__":
    main()
''',
    "Lennard-Jones liquid in the NVT ensemble: neighbour distances guarded, sampled in blocks": '''\
"""Lennard-Jones liquid in the NVT ensemble: neighbour distances guarded, sampled in blocks."""
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Setup:
    side: int = 6
    density: float = 0.7
    temperature: float = 1.1
    dt: float = 0.004
    friction: float = 1.0
    block: int = 100
    blocks: int = 60

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
''',
    "A character GRU in equinox: train on synthetic text, sample with a scan": '''\
"""A character GRU in equinox: train on synthetic text, sample with a scan."""
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

TEXT = "the quick brown fox jumps over the lazy dog. pack my box with five dozen jugs. " * 200
CHARS = sorted(set(TEXT))
LENGTH, BATCH, STEPS = 48, 32, 300


class CharRNN(eqx.Module):
    embed: eqx.nn.Embedding
    cell: eqx.nn.GRUCell
    out: eqx.nn.Linear

    def __init__(self, vocab, width, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.embed = eqx.nn.Embedding(vocab, 24, key=k1)
        self.cell = eqx.nn.GRUCell(24, width, key=k2)
        self.out = eqx.nn.Linear(width, vocab, key=k3)

    def advance(self, hidden, token):
        hidden = self.cell(self.embed(token), hidden)
        return hidden, self.out(hidden)

    def start(self):
        return jnp.zeros(self.cell.hidden_size)

    def __call__(self, tokens):
        return jax.lax.scan(lambda h, t: self.advance(h, t), self.start(), tokens)[1]


def loss_fn(model, windows):
    logits = jax.vmap(model)(windows[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, windows[:, 1:]).mean()


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


@eqx.filter_jit
def train_step(model, opt_state, text, key):
    first = jax.random.randint(key, (BATCH, 1), 0, text.size - LENGTH - 1)
    windows = text[first + jnp.arange(LENGTH + 1)]
    loss, grads = eqx.filter_value_and_grad(loss_fn)(model, windows)
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


@eqx.filter_jit
def sample(model, key, first, length):
    def body(carry, key):
        hidden, token = carry
        hidden, logits = model.advance(hidden, token)
        token = jax.random.categorical(key, 2.0 * logits)
        return (hidden, token), token

    return jax.lax.scan(body, (model.start(), first), jax.random.split(key, length))[1]


def main():
    index = {c: i for i, c in enumerate(CHARS)}
    text = jnp.asarray([index[c] for c in TEXT], jnp.int32)
    k_model, k_loop, k_sample = jax.random.split(jax.random.key(0), 3)
    model = CharRNN(len(CHARS), 64, k_model)
    opt_state = tx.init(eqx.filter(model, eqx.is_array))
    for i, key in enumerate(jax.random.split(k_loop, STEPS)):
        model, opt_state, loss = train_step(model, opt_state, text, key)
        if i % 100 == 0:
            print(f"step {i}: loss {loss:.3f}")
    drawn = np.asarray(sample(model, k_sample, text[0], 120))
    print("sample:", "".join(CHARS[i] for i in drawn))


if __name__ == "__main__":
    main()
''',
    "Radiocarbon-like calibration with blackjax: window adaptation, then four chains of NUTS": '''\
"""Radiocarbon-like calibration with blackjax: window adaptation, then four chains of NUTS."""
import blackjax
import jax
import jax.numpy as jnp
import numpy as np

CHAINS, WARMUP, DRAWS = 4, 300, 300


def synthetic(seed, n=60):
    rng = np.random.default_rng(seed)
    t = np.sort(rng.uniform(0.0, 5.0, n))
    y = 3.0 * np.exp(-0.7 * t) + 0.4 + 0.1 * rng.standard_t(4, n)
    return jnp.asarray(t, jnp.float32), jnp.asarray(y, jnp.float32)


T, Y = synthetic(0)


def logdensity(theta):
    amplitude, rate, floor = theta["amplitude"], jnp.exp(theta["log_rate"]), theta["floor"]
    scale = jnp.exp(theta["log_scale"])
    mean = amplitude * jnp.exp(-rate * T) + floor
    ll = jax.scipy.stats.t.logpdf((Y - mean) / scale, 4.0) - jnp.log(scale)
    prior = sum(-0.5 * jnp.sum((v / 3.0) ** 2) for v in theta.values())
    return ll.sum() + prior


def initial(key):
    values = 0.1 * jax.random.normal(key, (4,))
    return {
        "amplitude": 2.0 + values[0],
        "log_rate": values[1],
        "floor": values[2],
        "log_scale": values[3] - 2.0,
    }


def one_chain(key):
    k_init, k_warm, k_draw = jax.random.split(key, 3)
    warmup = blackjax.window_adaptation(blackjax.nuts, logdensity)
    (state, parameters), _ = warmup.run(k_warm, initial(k_init), num_steps=WARMUP)
    nuts = blackjax.nuts(logdensity, **parameters)

    def body(state, key):
        state, info = nuts.step(key, state)
        return state, (state.position, info.is_divergent)

    return jax.lax.scan(body, state, jax.random.split(k_draw, DRAWS))[1]


def main():
    keys = jax.random.split(jax.random.key(3), CHAINS)
    draws, divergent = jax.jit(jax.vmap(one_chain))(keys)
    print("divergences", int(divergent.sum()))
    for name, values in draws.items():
        values = np.asarray(values)
        rhat = blackjax.diagnostics.potential_scale_reduction(values)
        print(f"{name:10s} {values.mean():+.3f} +- {values.std():.3f}  R-hat {float(rhat):.3f}")


if __name__ == "__main__":
    main()
''',
    "Neural ODE for a spiral (diffrax + equinox)": '''\
"""Neural ODE for a spiral (diffrax + equinox)."""
import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

POINTS, BATCH, STEPS = 40, 16, 60


class Field(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(2, 2, 32, 2, activation=jnp.tanh, key=key)

    def __call__(self, t, y, args):
        return self.mlp(y**3)


class NeuralODE(eqx.Module):
    field: Field

    def __call__(self, ts, y0):
        sol = diffrax.diffeqsolve(
            diffrax.ODETerm(self.field),
            diffrax.Heun(),
            t0=ts[0],
            t1=ts[-1],
            dt0=ts[1] - ts[0],
            y0=y0,
            saveat=diffrax.SaveAt(ts=ts),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-5),
            max_steps=256,
        )
        return sol.ys


def spirals(key, n, ts):
    matrix = jnp.array([[-0.1, 2.0], [-2.0, -0.1]])
    y0 = jax.random.uniform(key, (n, 2), minval=-1.0, maxval=1.0)
    flow = jax.vmap(lambda t: jax.scipy.linalg.expm(t * matrix))(ts)
    return jnp.einsum("tij,nj->nti", flow, y0)


tx = optax.adabelief(3e-3)


def mse(model, ts, ys):
    pred = jax.vmap(model, in_axes=(None, 0))(ts, ys[:, 0])
    return jnp.mean((pred - ys) ** 2)


@eqx.filter_jit
def train_step(model, opt_state, ts, ys, key):
    idx = jax.random.randint(key, (BATCH,), 0, ys.shape[0])
    loss, grads = eqx.filter_value_and_grad(mse)(model, ts, ys[idx])
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss


def main():
    k_data, k_test, k_model, k_loop = jax.random.split(jax.random.key(0), 4)
    ts = jnp.linspace(0.0, 3.0, POINTS)
    train, test = spirals(k_data, 256, ts), spirals(k_test, 64, ts)
    model = NeuralODE(Field(k_model))
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for i, key in enumerate(jax.random.split(k_loop, STEPS), start=1):
        model, opt_state, loss = train_step(model, opt_state, ts, train, key)
        if i % 30 == 0:
            print(f"step {i}: loss {float(loss):.5f}")
    print("test error", float(eqx.filter_jit(mse)(model, ts, test)))


if __name__ == "__main__":
    main()
''',
    "Gaussian-process hyperparameters by maximum marginal likelihood, several restarts under vmap": '''\
"""Gaussian-process hyperparameters by maximum marginal likelihood, several restarts under vmap."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.scipy.linalg import cho_solve

N, DIM, RESTARTS = 250, 3, 6


def make_problem(seed):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, (N, DIM)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] ** 2 + 0.1 * rng.standard_normal(N)
    return jnp.asarray(x), jnp.asarray(y - y.mean(), jnp.float32)


def kernel(theta, a, b):
    a = a / jnp.exp(theta["length"])
    b = b / jnp.exp(theta["length"])
    d2 = jnp.sum(a**2, 1)[:, None] + jnp.sum(b**2, 1)[None, :] - 2 * a @ b.T
    return jnp.exp(2 * theta["scale"] - 0.5 * jnp.maximum(d2, 0.0))


def factor(theta, x):
    noise = jnp.exp(2 * theta["noise"]) + 1e-5
    return jnp.linalg.cholesky(kernel(theta, x, x) + noise * jnp.eye(x.shape[0]))


def negative_log_likelihood(theta, x, y):
    chol = factor(theta, x)
    alpha = cho_solve((chol, True), y)
    return 0.5 * y @ alpha + jnp.sum(jnp.log(jnp.diag(chol)))


@functools.partial(jax.jit, static_argnames="kind")
def fit(theta, x, y, kind, rounds):
    tx = {"adam": optax.adam(0.05), "sgd": optax.sgd(0.001, 0.9)}[kind]

    def step(_, carry):
        theta, state, _ = carry
        loss, grads = jax.value_and_grad(negative_log_likelihood)(theta, x, y)
        updates, state = tx.update(grads, state)
        return optax.apply_updates(theta, updates), state, loss

    init = (theta, tx.init(theta), jnp.zeros((), x.dtype))
    theta, _, loss = jax.lax.fori_loop(0, rounds, step, init)
    return theta, loss


@jax.jit
def predict(theta, x, y, new):
    chol = factor(theta, x)
    return kernel(theta, new, x) @ cho_solve((chol, True), y)


def starts(key):
    k_l, k_s, k_n = jax.random.split(key, 3)
    return {
        "length": 0.3 * jax.random.normal(k_l, (RESTARTS, DIM)),
        "scale": 0.3 * jax.random.normal(k_s, (RESTARTS,)),
        "noise": -1.0 + 0.3 * jax.random.normal(k_n, (RESTARTS,)),
    }


def main():
    x, y = make_problem(0)
    x_new, y_new = make_problem(1)
    theta0 = starts(jax.random.key(0))
    for kind in ("sgd", "adam"):
        many = jax.vmap(functools.partial(fit, kind=kind, rounds=40), in_axes=(0, None, None))
        thetas, losses = many(theta0, x, y)
        best = jax.tree.map(lambda v: v[jnp.argmin(losses)], thetas)
        rmse = jnp.sqrt(jnp.mean((predict(best, x, y, x_new) - y_new) ** 2))
        print(f"{kind:5s} losses {np.round(np.asarray(losses), 1)}  test rmse {float(rmse):.3f}")


if __name__ == "__main__":
    main()
''',
    "Denoising autoencoder in flax.nnx, written functionally: split once, step jitted once": '''\
"""Denoising autoencoder in flax.nnx, written functionally: split once, step jitted once."""
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

DIM, BATCH, STEPS = 64, 256, 600


class Autoencoder(nnx.Module):
    def __init__(self, width, rngs):
        self.down = nnx.Linear(DIM, width, rngs=rngs)
        self.mid = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.Linear(width, DIM, rngs=rngs)

    def __call__(self, x):
        return self.up(nnx.gelu(self.mid(nnx.gelu(self.down(x)))))


graphdef, initial = nnx.split(Autoencoder(96, nnx.Rngs(0)))
tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 2e-3, 50, STEPS))


def signals(key, n):
    """Sums of three sine waves."""
    k_f, k_p, k_a = jax.random.split(key, 3)
    freq = jax.random.uniform(k_f, (n, 3, 1), minval=1.0, maxval=5.0)
    phase = jax.random.uniform(k_p, (n, 3, 1), maxval=2 * jnp.pi)
    amp = jax.random.uniform(k_a, (n, 3, 1), minval=0.3, maxval=1.0)
    t = jnp.linspace(0.0, 2 * jnp.pi, DIM)
    return jnp.sum(amp * jnp.sin(freq * t + phase), axis=1)


def loss_fn(params, clean, noisy):
    return jnp.mean((nnx.merge(graphdef, params)(noisy) - clean) ** 2)


@jax.jit
def train_step(params, opt_state, key):
    k_data, k_noise = jax.random.split(key)
    clean = signals(k_data, BATCH)
    noisy = clean + 0.5 * jax.random.normal(k_noise, clean.shape)
    loss, grads = jax.value_and_grad(loss_fn)(params, clean, noisy)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def save(path, params):
    leaves = jax.device_get(jax.tree.leaves(params))
    np.savez(path, **{str(i): leaf for i, leaf in enumerate(leaves)})


def restore(path, like):
    with np.load(path) as f:
        leaves = [jnp.asarray(f[str(i)]) for i in range(len(f.files))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def main():
    k_loop, k_test, k_noise = jax.random.split(jax.random.key(5), 3)
    test = signals(k_test, 1000)
    noisy = test + 0.5 * jax.random.normal(k_noise, test.shape)
    evaluate = jax.jit(loss_fn)
    params, opt_state = initial, tx.init(initial)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "last.npz"
        for i, key in enumerate(jax.random.split(k_loop, STEPS), start=1):
            params, opt_state, loss = train_step(params, opt_state, key)
            if i % 200 == 0:
                save(path, params)
                print(f"step {i}: loss {float(loss):.4f} test {float(evaluate(params, test, noisy)):.4f}")
        again = restore(path, params)
    print("after restoring", float(evaluate(again, test, noisy)))


if __name__ == "__main__":
    main()
''',
    "Regression with a residual MLP (flax.linen, optax); a print every 500 steps, evaluation at the end": '''\
"""Regression with a residual MLP (flax.linen, optax); a print every 500 steps, evaluation at the end."""
import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState


class ResBlock(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        h = nn.gelu(nn.Dense(2 * self.width)(h))
        return x + nn.Dense(self.width)(h)


class Regressor(nn.Module):
    width: int = 48
    depth: int = 4

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.depth):
            x = ResBlock(self.width)(x)
        return nn.Dense(1)(nn.LayerNorm()(x))[:, 0]


def friedman(seed, n):
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 10)).astype(np.float32)
    y = (np.sin(np.pi * x[:, 0] * x[:, 1]) + 2 * (x[:, 2] - 0.5) ** 2 + x[:, 3] + 0.5 * x[:, 4]
         + 0.1 * rng.normal(size=n))
    return jnp.asarray(x), jnp.asarray(y, jnp.float32)


def mse(params, apply_fn, x, y):
    return jnp.mean((apply_fn(params, x) - y) ** 2)


@jax.jit
def train_step(state, key, x, y):
    idx = jax.random.randint(key, (256,), 0, x.shape[0])
    loss, grads = jax.value_and_grad(mse)(state.params, state.apply_fn, x[idx], y[idx])
    return state.apply_gradients(grads=grads), loss


@jax.jit
def evaluate(state, x, y):
    return mse(state.params, state.apply_fn, x, y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1000)
    ap.add_argument("--lr", type=float, default=2e-3)
    args = ap.parse_args()
    x, y = friedman(0, 20_000)
    test = friedman(1, 5_000)
    k_init, k_train = jax.random.split(jax.random.key(0))
    model = Regressor()
    tx = optax.adamw(optax.cosine_decay_schedule(args.lr, args.steps))
    state = TrainState.create(apply_fn=model.apply, params=jax.jit(model.init)(k_init, x[:1]), tx=tx)
    keys = jax.random.split(k_train, args.steps)
    for step, key in enumerate(keys, 1):
        state, loss = train_step(state, key, x, y)
        if step % 500 == 0:
            print(f"step {step}: loss {float(loss):.4f}")
    print(f"test mse {float(evaluate(state, *test)):.4f}")


if __name__ == "__main__":
    main()
''',
    "Character model on a synthetic grammar: a small causal transformer (equinox, optax)": '''\
"""Character model on a synthetic grammar: a small causal transformer (equinox, optax)."""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    vocab: int = 16
    length: int = 32
    dim: int = 32
    heads: int = 4
    batch: int = 64
    epochs: int = 3
    n_train: int = 4096


class Block(eqx.Module):
    attn: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norm1: eqx.nn.LayerNorm
    norm2: eqx.nn.LayerNorm

    def __init__(self, dim, heads, *, key):
        k1, k2 = jr.split(key)
        self.attn = eqx.nn.MultiheadAttention(heads, dim, key=k1)
        self.mlp = eqx.nn.MLP(dim, dim, 2 * dim, 1, activation=jax.nn.gelu, key=k2)
        self.norm1 = eqx.nn.LayerNorm(dim)
        self.norm2 = eqx.nn.LayerNorm(dim)

    def __call__(self, x, mask):
        h = jax.vmap(self.norm1)(x)
        x = x + self.attn(h, h, h, mask=mask)
        return x + jax.vmap(lambda t: self.mlp(self.norm2(t)))(x)


class Model(eqx.Module):
    embed: eqx.nn.Embedding
    pos: jax.Array
    blocks: list
    head: eqx.nn.Linear

    def __init__(self, cfg, *, key):
        k1, k2, k3, *ks = jr.split(key, 5)
        self.embed = eqx.nn.Embedding(cfg.vocab, cfg.dim, key=k1)
        self.pos = 0.02 * jr.normal(k2, (cfg.length, cfg.dim))
        self.blocks = [Block(cfg.dim, cfg.heads, key=k) for k in ks]
        self.head = eqx.nn.Linear(cfg.dim, cfg.vocab, key=k3)

    def __call__(self, tokens):
        n = tokens.shape[0]
        x = jax.vmap(self.embed)(tokens) + self.pos[:n]
        mask = jnp.tril(jnp.ones((n, n), bool))
        for block in self.blocks:
            x = block(x, mask)
        return jax.vmap(self.head)(x)


def sentences(seed, n, cfg):
    """x[t] = x[t-1] + x[t-2] + noise, modulo the vocabulary."""
    rng = np.random.default_rng(seed)
    x = rng.integers(0, cfg.vocab, (n, cfg.length + 1))
    jump = rng.random(x.shape) < 0.1
    for t in range(2, cfg.length + 1):
        x[:, t] = np.where(jump[:, t], x[:, t], (x[:, t - 1] + x[:, t - 2]) % cfg.vocab)
    return jnp.asarray(x, jnp.int32)


def loss_fn(model, tokens):
    logits = jax.vmap(model)(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@eqx.filter_jit
def train_epoch(model, opt_state, opt, data, key, batch):
    order = jr.permutation(key, data.shape[0]).reshape(-1, batch)
    params, static = eqx.partition(model, eqx.is_array)

    def body(carry, idx):
        params, opt_state = carry
        loss, grads = jax.value_and_grad(
            lambda p: loss_fn(eqx.combine(p, static), data[idx]))(params)
        updates, opt_state = opt.update(grads, opt_state, params)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), order)
    return eqx.combine(params, static), opt_state, losses.mean()


def main(cfg=Config()):
    data = sentences(0, cfg.n_train, cfg)
    held_out = sentences(1, 512, cfg)
    key, k_model = jr.split(jr.key(0))
    model = Model(cfg, key=k_model)
    opt = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))
    opt_state = opt.init(eqx.filter(model, eqx.is_array))
    evaluate = eqx.filter_jit(loss_fn)
    for epoch, k in enumerate(jr.split(key, cfg.epochs)):
        model, opt_state, loss = train_epoch(model, opt_state, opt, data, k, cfg.batch)
        print(f"epoch {epoch}: train {float(loss):.3f} held out {float(evaluate(model, held_out)):.3f}")


if __name__ == "__main__":
    main()
''',
    "Eight-schools-like hierarchical model with NUTS, and posterior predictive checks (numpyro)": '''\
"""Eight-schools-like hierarchical model with NUTS, and posterior predictive checks (numpyro)."""
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, Predictive
from numpyro.infer.reparam import LocScaleReparam


def make_schools(seed, n_schools, n_pupils):
    rng = np.random.default_rng(seed)
    effect = 3.0 + 1.5 * rng.normal(size=n_schools)
    school = np.repeat(np.arange(n_schools), n_pupils)
    hours = rng.gamma(2.0, 1.0, school.size)
    score = effect[school] + 0.8 * hours + rng.normal(size=school.size)
    return (jnp.asarray(school, jnp.int32), jnp.asarray(hours, jnp.float32),
            jnp.asarray(score, jnp.float32))


@numpyro.handlers.reparam(config={"effect": LocScaleReparam(0.0)})
def model(school, hours, n_schools, score=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfNormal(3.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    with numpyro.plate("schools", n_schools):
        effect = numpyro.sample("effect", dist.Normal(mu, tau))
    mean = numpyro.deterministic("mean", effect[school] + slope * hours)
    with numpyro.plate("pupils", school.shape[0]):
        numpyro.sample("score", dist.Normal(mean, sigma), obs=score)


def check(draws, score):
    """Tail probabilities of simple statistics."""
    for name, stat in {"min": np.min, "max": np.max, "sd": np.std}.items():
        p = (stat(draws, axis=1) > stat(score)).mean()
        print(f"posterior predictive p of the {name}: {p:.2f}")


def main():
    n_schools = 20
    school, hours, score = make_schools(0, n_schools, 30)
    k_run, k_pred = jax.random.split(jax.random.key(0))
    mcmc = MCMC(NUTS(model), num_warmup=200, num_samples=300, progress_bar=False)
    mcmc.run(k_run, school, hours, n_schools, score=score)
    samples = mcmc.get_samples()
    for name in ("mu", "tau", "slope", "sigma"):
        s = np.asarray(samples[name])
        print(f"{name:6s} {s.mean():.3f} +- {s.std():.3f}")
    predict = Predictive(model, samples, return_sites=["score"])
    draws = predict(k_pred, school, hours, n_schools)["score"]
    check(np.asarray(draws), np.asarray(score))


if __name__ == "__main__":
    main()
''',
    "Ensemble of forced pendulums (diffrax): a bifurcation-like sweep of the drive, timed": '''\
"""Ensemble of forced pendulums (diffrax): a bifurcation-like sweep of the drive, timed."""
import time

import diffrax as dfx
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class Pendulum(eqx.Module):
    damping: float = 0.5
    omega: float = 2.0 / 3.0

    def __call__(self, t, y, drive):
        angle, speed = y
        return speed, -self.damping * speed - jnp.sin(angle) + drive * jnp.cos(self.omega * t)


class Sweep:
    def __init__(self, pendulum, n_periods, n_keep):
        period = 2 * np.pi / pendulum.omega
        self.term = dfx.ODETerm(pendulum)
        self.ts = jnp.asarray(period * np.arange(n_periods - n_keep, n_periods), jnp.float32)
        self.t1 = float(period * n_periods)

    def solve_one(self, drive, y0):
        sol = dfx.diffeqsolve(
            self.term, dfx.Tsit5(), 0.0, self.t1, 0.05, y0, args=drive,
            saveat=dfx.SaveAt(ts=self.ts), max_steps=8192,
            stepsize_controller=dfx.PIDController(rtol=1e-5, atol=1e-6),
        )
        return sol.ys[1], sol.stats["num_steps"]

    def compile(self, drives, y0):
        batched = jax.jit(jax.vmap(self.solve_one, in_axes=(0, None)))
        return batched.lower(drives, y0).compile()


@jax.jit
def n_branches(speeds):
    """Number of distinct speeds at the section, per drive (rounded to 0.02)."""
    cells = jnp.sort(jnp.round(speeds / 0.02), axis=1)
    return 1 + (jnp.diff(cells, axis=1) > 1).sum(1)


def main(n_drives=600):
    drives = jnp.linspace(0.9, 1.25, n_drives)
    y0 = (jnp.float32(0.2), jnp.float32(0.0))
    sweep = Sweep(Pendulum(), n_periods=60, n_keep=24)
    t0 = time.perf_counter()
    run = sweep.compile(drives, y0)
    t1 = time.perf_counter()
    speeds, steps = jax.block_until_ready(run(drives, y0))
    t2 = time.perf_counter()
    print(f"compiled in {t1 - t0:.2f} s, ran in {t2 - t1:.2f} s, {int(steps.sum())} solver steps")
    branches = np.asarray(n_branches(speeds))
    for lo in range(0, n_drives, n_drives // 4):
        hi = lo + n_drives // 4
        print(f"drives {lo}-{hi}: median branches {np.median(branches[lo:hi]):.0f}")


if __name__ == "__main__":
    main()
''',
    "Preconditioned conjugate gradients on a variable Poisson problem, with and without the preconditioner": '''\
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
    ap.add_argument("--n", type=int, default=320)
    ap.add_argument("--sources", type=int, default=10)
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
''',
    "Image-like classification with dropout (flax.nnx); the best weights are kept in a temporary file": '''\
"""Image-like classification with dropout (flax.nnx); the best weights are kept in a temporary file."""
import pathlib
import pickle
import tempfile
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


@dataclass
class Options:
    epochs: int = 4
    batch: int = 128
    n_train: int = 4096
    size: int = 12
    classes: int = 5
    lr: float = 2e-3


class Net(nnx.Module):
    def __init__(self, opts, rngs):
        self.conv1 = nnx.Conv(1, 12, (3, 3), rngs=rngs)
        self.conv2 = nnx.Conv(12, 16, (3, 3), strides=2, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.out = nnx.Linear(16 * (opts.size // 2) ** 2, opts.classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.conv2(nnx.relu(self.conv1(x))))
        return self.out(self.drop(x.reshape(x.shape[0], -1)))


def stripes(seed, n, opts):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, opts.classes, n)
    angle = np.pi * label / opts.classes
    g = np.arange(opts.size)
    phase = rng.uniform(0, 6.28, n)[:, None, None]
    arg = np.cos(angle)[:, None, None] * g[:, None] + np.sin(angle)[:, None, None] * g + phase
    x = np.sin(1.2 * arg) + 0.7 * rng.normal(size=arg.shape)
    return jnp.asarray(x[..., None], jnp.float32), jnp.asarray(label, jnp.int32)


def loss_fn(model, x, y):
    logits = model(x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


@nnx.jit
def train_step(model, optimizer, x, y, order, i):
    idx = order[i]
    loss, grads = nnx.value_and_grad(loss_fn)(model, x[idx], y[idx])
    optimizer.update(model, grads)
    return loss


@nnx.jit
def accuracy(model, x, y):
    return (model(x).argmax(-1) == y).mean()


def save(path, model):
    path.write_bytes(pickle.dumps(jax.device_get(nnx.to_pure_dict(nnx.state(model, nnx.Param)))))


def main(opts=Options()):
    x, y = stripes(0, opts.n_train, opts)
    xv, yv = stripes(1, 1000, opts)
    model = Net(opts, nnx.Rngs(params=0, dropout=1))
    optimizer = nnx.Optimizer(model, optax.adam(opts.lr), wrt=nnx.Param)
    n_steps = opts.n_train // opts.batch
    best = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "best.pkl"
        for epoch, key in enumerate(jax.random.split(jax.random.key(0), opts.epochs)):
            order = jax.random.permutation(key, opts.n_train).reshape(n_steps, opts.batch)
            model.train()
            losses = [train_step(model, optimizer, x, y, order, i) for i in range(n_steps)]
            model.eval()
            acc = float(accuracy(model, xv, yv))
            print(f"epoch {epoch}: loss {np.mean(jax.device_get(losses)):.3f} validation {acc:.3f}")
            if acc > best:
                best = acc
                save(path, model)
        print(f"best {best:.3f}, {path.stat().st_size} bytes kept")


if __name__ == "__main__":
    main()
''',
    "Banana-shaped posterior: four NUTS chains side by side after window adaptation (blackjax)": '''\
"""Banana-shaped posterior: four NUTS chains side by side after window adaptation (blackjax)."""
import argparse

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats


class Banana:
    """Nonlinear regression y ~ N(a + b^2 x, 1) with normal priors."""

    def __init__(self, seed, n):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        self.x = jnp.asarray(x, jnp.float32)
        self.y = jnp.asarray(0.5 + 0.6 * x + rng.normal(size=n), jnp.float32)

    def __call__(self, p):
        mean = p["a"] + p["b"] ** 2 * self.x
        prior = stats.norm.logpdf(p["a"]) + stats.norm.logpdf(p["b"], 0.7, 0.3)
        return prior + stats.norm.logpdf(self.y, mean, 1.0).sum()


def sample_chains(target, key, n_chains, n_warm, n_keep):
    warm = blackjax.window_adaptation(blackjax.nuts, target)
    k_warm, k_start, k_run = jax.random.split(key, 3)

    @jax.jit
    def run(k_warm, k_start, k_run):
        origin = {"a": jnp.zeros(()), "b": jnp.full((), 0.7)}
        (state, params), _ = warm.run(k_warm, origin, n_warm)
        kernel = blackjax.nuts(target, **params)

        def one_chain(k_start, k_run):
            noise = 0.1 * jax.random.normal(k_start, (2,))
            pos = {"a": state.position["a"] + noise[0], "b": state.position["b"] + noise[1]}

            def body(s, k):
                s, info = kernel.step(k, s)
                return s, (s.position, info.is_divergent)

            return jax.lax.scan(body, kernel.init(pos), jax.random.split(k_run, n_keep))[1]

        return jax.vmap(one_chain)(jax.random.split(k_start, n_chains),
                                   jax.random.split(k_run, n_chains))

    return run(k_warm, k_start, k_run)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chains", type=int, default=4)
    ap.add_argument("--warm", type=int, default=300)
    ap.add_argument("--keep", type=int, default=500)
    args = ap.parse_args()
    target = Banana(0, 400)
    draws, divergent = sample_chains(target, jax.random.key(0), args.chains, args.warm, args.keep)
    for name, d in jax.device_get(draws).items():
        within = d.var(1).mean()
        rhat = np.sqrt(1 + d.mean(1).var(ddof=1) / within)
        print(f"{name}: {d.mean():.3f} +- {d.std():.3f}, R-hat {rhat:.3f}")
    print(f"divergences: {int(divergent.sum())}")


if __name__ == "__main__":
    main()
''',
    "Bootstrap particle filter for stochastic volatility; a grid of parameters is scored in one call": '''\
"""Bootstrap particle filter for stochastic volatility; a grid of parameters is scored in one call."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Params(NamedTuple):
    mu: jax.Array
    phi: jax.Array
    sigma: jax.Array


def simulate(seed, n, mu=-1.0, phi=0.95, sigma=0.25):
    rng = np.random.default_rng(seed)
    h, out = mu, np.empty(n, np.float32)
    for t in range(n):
        h = mu + phi * (h - mu) + sigma * rng.normal()
        out[t] = np.exp(h / 2) * rng.normal()
    return jnp.asarray(out)


def systematic(key, weights):
    n = weights.shape[0]
    points = (jnp.arange(n) + jax.random.uniform(key)) / n
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), points), 0, n - 1)


def log_likelihood(params, key, y, n_particles):
    k_init, k_steps = jax.random.split(key)
    sd0 = params.sigma / jnp.sqrt(1 - params.phi**2)
    h0 = params.mu + sd0 * jax.random.normal(k_init, (n_particles,))

    def step(h, inputs):
        y_t, k = inputs
        k_move, k_pick = jax.random.split(k)
        h = params.mu + params.phi * (h - params.mu) + params.sigma * jax.random.normal(k_move, h.shape)
        logw = -0.5 * (jnp.log(2 * jnp.pi) + h + y_t**2 * jnp.exp(-h))
        total = jax.nn.logsumexp(logw)
        h = h[systematic(k_pick, jnp.exp(logw - total))]
        return h, total - jnp.log(n_particles)

    _, terms = jax.lax.scan(step, h0, (y, jax.random.split(k_steps, y.shape[0])))
    return terms.sum()


class GridScore:
    """All combinations share the random numbers, so that the surface is smooth."""

    def __init__(self, y, n_particles):
        self.y = y
        score = lambda p, key, y: log_likelihood(p, key, y, n_particles)
        self.score = jax.jit(jax.vmap(score, in_axes=(0, None, None)))

    def __call__(self, grid, key):
        return self.score(grid, key, self.y)


def main(n_obs=600, n_particles=2500):
    y = simulate(0, n_obs)
    phi, sigma = np.meshgrid(np.linspace(0.85, 0.99, 6), np.linspace(0.1, 0.5, 5), indexing="ij")
    grid = Params(*(jnp.asarray(a.ravel(), jnp.float32) for a in (np.full_like(phi, -1.0), phi, sigma)))
    scorer = GridScore(y, n_particles)
    for key in jax.random.split(jax.random.key(0), 3):
        ll = np.asarray(scorer(grid, key))
        best = int(ll.argmax())
        print(f"best phi {phi.ravel()[best]:.3f} sigma {sigma.ravel()[best]:.2f} "
              f"log likelihood {ll[best]:.2f}")


if __name__ == "__main__":
    main()
''',
}
