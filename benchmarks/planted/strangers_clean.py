"""Fifteen programs without a pitfall, by the authors of `strangers.py`."""

from __future__ import annotations

STRANGERS_CLEAN: dict[str, str] = {
    "linen_static_train_flag": '''\
"""flax.linen classifier with dropout: one model, train and eval as a static flag with two values."""
import functools
import time

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState


class Net(nn.Module):
    width: int = 256
    classes: int = 10

    @nn.compact
    def __call__(self, x, train):
        for _ in range(3):
            x = nn.relu(nn.LayerNorm()(nn.Dense(self.width)(x)))
            x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


net = Net()


def make(key, n):
    k1, k2, k3 = jax.random.split(key, 3)
    y = jax.random.randint(k1, (n,), 0, 10)
    return 0.4 * jax.random.normal(k2, (10, 64))[y] + jax.random.normal(k3, (n, 64)), y


@functools.partial(jax.jit, static_argnames="train")
def forward(params, x, y, key, train):
    logits = net.apply(params, x, train, rngs={"dropout": key})
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, jnp.mean(jnp.argmax(logits, -1) == y)


@jax.jit
def step(state, x, y, key):
    k_idx, k_drop = jax.random.split(jax.random.fold_in(key, state.step))
    idx = jax.random.randint(k_idx, (128,), 0, x.shape[0])

    def loss_fn(p):
        return forward(p, x[idx], y[idx], k_drop, train=True)

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), loss, acc


def main():
    k_data, k_init, k_run, k_eval = jax.random.split(jax.random.key(0), 4)
    x, y = make(k_data, 10_000)
    x_val, y_val, x, y = x[:2000], y[:2000], x[2000:], y[2000:]
    params = jax.jit(functools.partial(net.init, train=False))(k_init, x[:1])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adamw(1e-3))
    start = time.perf_counter()
    for i in range(1, 601):
        state, loss, acc = step(state, x, y, k_run)
        if i % 200 == 0:
            val_loss, val_acc = forward(state.params, x_val, y_val, k_eval, train=False)
            print(f"{i} train {float(loss):.3f} val {float(val_loss):.3f} acc {float(val_acc):.3f}")
    jax.block_until_ready(state)
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
''',
    "equinox_gru_scan": '''\
"""Equinox GRU on synthetic sequences; the epoch is one scan."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear

    def __init__(self, d, width, key):
        k1, k2 = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(d, width, key=k1)
        self.head = eqx.nn.Linear(width, 1, key=k2)

    def __call__(self, xs):
        h0 = jnp.zeros(self.cell.hidden_size)
        h, _ = jax.lax.scan(lambda h, x: (self.cell(x, h), None), h0, xs)
        return self.head(h)[0]


def sequences(key, n, t=32):
    xs = jax.random.normal(key, (n, t, 4))
    return xs, (xs[..., 0].sum(axis=1) > 0).astype(jnp.float32)


tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


def loss_fn(model, x, y):
    return optax.sigmoid_binary_cross_entropy(jax.vmap(model)(x), y).mean()


@eqx.filter_jit
def epoch(model, opt_state, x, y, key):
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def body(carry, idx):
        params, opt_state = carry
        loss, g = jax.value_and_grad(lambda p: loss_fn(eqx.combine(p, static), x[idx], y[idx]))(params)
        updates, opt_state = tx.update(g, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    order = jax.random.permutation(key, x.shape[0]).reshape(-1, 64)
    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), order)
    return eqx.combine(params, static), opt_state, losses.mean()


@eqx.filter_jit
def accuracy(model, x, y):
    return jnp.mean((jax.vmap(model)(x) > 0) == (y > 0.5))


def main():
    k_train, k_test, k_model, key = jax.random.split(jax.random.key(7), 4)
    x, y = sequences(k_train, 4096)
    x_test, y_test = sequences(k_test, 1000)
    model = Recurrent(4, 48, k_model)
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for e in range(8):
        key, sub = jax.random.split(key)
        model, opt_state, loss = epoch(model, opt_state, x, y, sub)
        print(f"epoch {e} loss {float(loss):.4f} acc {float(accuracy(model, x_test, y_test)):.3f}")


if __name__ == "__main__":
    main()
''',
    "nnx_regression_eval": '''\
"""flax.nnx regression with an evaluation on a held-out set every 250 steps."""
import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class ResBlock(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Regressor(nnx.Module):
    def __init__(self, d, width, rngs):
        self.inp = nnx.Linear(d, width, rngs=rngs)
        self.a = ResBlock(width, rngs)
        self.b = ResBlock(width, rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.b(self.a(self.inp(x))))[:, 0]


def target(x):
    return jnp.sin(2 * x[:, 0]) * x[:, 1] + jnp.abs(x[:, 2])


def mse(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


@nnx.jit
def train_step(model, optimizer, key):
    x = jax.random.normal(key, (128, 8))
    loss, grads = nnx.value_and_grad(mse)(model, x, target(x))
    optimizer.update(model, grads)
    return loss


@nnx.jit
def evaluate(model, x, y):
    return mse(model, x, y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=1000)
    args = ap.parse_args()
    k_test, key = jax.random.split(jax.random.key(3))
    x_test = jax.random.normal(k_test, (2048, 8))
    y_test = target(x_test)
    model = Regressor(8, 96, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    for i in range(1, args.steps + 1):
        key, sub = jax.random.split(key)
        train_step(model, optimizer, sub)
        if i % 250 == 0:
            print(f"step {i} test mse {float(evaluate(model, x_test, y_test)):.4f}")


if __name__ == "__main__":
    main()
''',
    "optax_factorisation": '''\
"""Matrix factorisation with optax; embeddings are gathered and the loop is a scan per epoch."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    users: int = 2000
    items: int = 1500
    dim: int = 32
    batch: int = 2048
    steps_per_epoch: int = 200
    epochs: int = 6
    decay: float = 1e-5


CFG = Config()
TX = optax.adam(5e-3)


def init(key):
    ku, ki = jax.random.split(key)
    return {
        "user": 0.1 * jax.random.normal(ku, (CFG.users, CFG.dim)),
        "item": 0.1 * jax.random.normal(ki, (CFG.items, CFG.dim)),
        "bias": jnp.zeros(()),
    }


def predict(params, u, i):
    return jnp.sum(params["user"][u] * params["item"][i], axis=-1) + params["bias"]


def loss_fn(params, u, i, r):
    reg = sum(jnp.sum(jnp.square(params[k])) for k in ("user", "item"))
    return jnp.mean((predict(params, u, i) - r) ** 2) + CFG.decay * reg


def ratings(key, n):
    k1, k2, k3, k4 = jax.random.split(key, 4)
    truth = {
        "user": 0.5 * jax.random.normal(k1, (CFG.users, 4)),
        "item": 0.5 * jax.random.normal(k2, (CFG.items, 4)),
        "bias": jnp.asarray(3.0),
    }
    u = jax.random.randint(k3, (n,), 0, CFG.users)
    i = jax.random.randint(k4, (n,), 0, CFG.items)
    return u, i, predict(truth, u, i)


@jax.jit
def run_epoch(params, opt_state, data, key):
    def body(carry, k):
        params, opt_state = carry
        idx = jax.random.randint(k, (CFG.batch,), 0, data[0].shape[0])
        loss, g = jax.value_and_grad(loss_fn)(params, *(a[idx] for a in data))
        updates, opt_state = TX.update(g, opt_state)
        return (optax.apply_updates(params, updates), opt_state), loss

    (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), jax.random.split(key, CFG.steps_per_epoch))
    return params, opt_state, losses.mean()


@jax.jit
def rmse(params, data):
    u, i, r = data
    return jnp.sqrt(jnp.mean((predict(params, u, i) - r) ** 2))


def main():
    k_data, k_init, key = jax.random.split(jax.random.key(10), 3)
    data = ratings(k_data, 220_000)
    test, train = (tuple(a[s] for a in data) for s in (slice(0, 20_000), slice(20_000, None)))
    params = init(k_init)
    opt_state = TX.init(params)
    for epoch in range(CFG.epochs):
        params, opt_state, loss = run_epoch(params, opt_state, train, jax.random.fold_in(key, epoch))
        print(f"epoch {epoch} loss {float(loss):.4f} test rmse {float(rmse(params, test)):.4f}")


if __name__ == "__main__":
    main()
''',
    "linen_fixed_buffer_decode": '''\
"""Linen language model; decoding fills a fixed buffer inside one fori_loop."""
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

VOCAB, CONTEXT, DIM = 32, 40, 48


class Block(nn.Module):
    @nn.compact
    def __call__(self, x, mask):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(h, h, mask=mask)
        return x + nn.Dense(DIM)(nn.gelu(nn.Dense(3 * DIM)(nn.LayerNorm()(x))))


class LM(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        mask = nn.make_causal_mask(tokens)
        pos = self.param("pos", nn.initializers.normal(0.02), (CONTEXT, DIM))
        x = nn.Embed(VOCAB, DIM)(tokens) + pos[: tokens.shape[1]]
        for _ in range(2):
            x = Block()(x, mask)
        return nn.Dense(VOCAB)(nn.LayerNorm()(x))


lm = LM()
tx = optax.adamw(2e-3)


def sample_text(key, n):
    k1, k2 = jax.random.split(key)
    start = jax.random.randint(k1, (n, 1), 0, VOCAB)
    stride = jax.random.randint(k2, (n, 1), 1, 5)
    return (start + stride * jnp.arange(CONTEXT)) % VOCAB


@jax.jit
def train_step(params, opt_state, data, key):
    batch = data[jax.random.randint(key, (16,), 0, data.shape[0])]

    def loss_fn(p):
        logits = lm.apply(p, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    loss, g = jax.value_and_grad(loss_fn)(params)
    updates, opt_state = tx.update(g, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


@jax.jit
def decode(params, prompt):
    start = prompt.shape[1]
    buffer = jnp.pad(prompt, ((0, 0), (0, CONTEXT - start)))

    def body(t, buf):
        logits = lm.apply(params, buf)
        return buf.at[:, t].set(jnp.argmax(logits[:, t - 1], axis=-1))

    return jax.lax.fori_loop(start, CONTEXT, body, buffer)


def main():
    k_data, k_test, k_init, key = jax.random.split(jax.random.key(15), 4)
    data = sample_text(k_data, 4096)
    params = jax.jit(lm.init)(k_init, data[:1])
    opt_state = tx.init(params)
    for i in range(1, 251):
        key, sub = jax.random.split(key)
        params, opt_state, loss = train_step(params, opt_state, data, sub)
        if i % 125 == 0:
            print(f"step {i} loss {float(loss):.4f}")
    truth = sample_text(k_test, 32)
    out = decode(params, truth[:, :12])
    print(f"accuracy of the continuation {float(jnp.mean(out[:, 12:] == truth[:, 12:])):.3f}")


if __name__ == "__main__":
    main()
''',
    "equinox_deep_ensemble": '''\
"""Deep ensemble in equinox, trained and evaluated under vmap, each member with its own key."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax

MEMBERS, STEPS, BATCH = 8, 1500, 64


def make_member(key):
    return eqx.nn.MLP(2, 2, 64, 2, activation=jax.nn.tanh, key=key)


def nll(model, x, y):
    mean, raw = jax.vmap(model)(x).T
    scale = jax.nn.softplus(raw) + 1e-3
    return -jnp.mean(jax.scipy.stats.norm.logpdf(y, mean, scale))


def make_fit(tx, static):
    def fit(params, x, y, key):
        def body(carry, k):
            p, s = carry
            idx = jax.random.randint(k, (BATCH,), 0, x.shape[0])
            loss, g = jax.value_and_grad(lambda p: nll(eqx.combine(p, static), x[idx], y[idx]))(p)
            u, s = tx.update(g, s)
            return (optax.apply_updates(p, u), s), loss

        (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), jax.random.split(key, STEPS))
        return params, losses[-1]

    return jax.jit(jax.vmap(fit, in_axes=(0, None, None, 0)))


@eqx.filter_jit
def mixture(models, x):
    @eqx.filter_vmap(in_axes=(eqx.if_array(0), None))
    def each(model, x):
        mean, raw = jax.vmap(model)(x).T
        return mean, jax.nn.softplus(raw) + 1e-3

    mean, scale = each(models, x)
    total = jnp.mean(scale**2 + mean**2, axis=0) - jnp.mean(mean, axis=0) ** 2
    return jnp.mean(mean, axis=0), jnp.sqrt(total)


def surface(x):
    return jnp.sin(3 * x[:, 0]) + x[:, 1] ** 2


def main():
    k_x, k_n, k_test, k_init, k_fit = jax.random.split(jax.random.key(1), 5)
    x = jax.random.uniform(k_x, (2000, 2), minval=-1.0, maxval=1.0)
    y = surface(x) + 0.1 * jax.random.normal(k_n, (2000,))
    models = eqx.filter_vmap(make_member)(jax.random.split(k_init, MEMBERS))
    params, static = eqx.partition(models, eqx.is_inexact_array)
    params, losses = make_fit(optax.adam(2e-3), static)(params, x, y, jax.random.split(k_fit, MEMBERS))
    print("final losses", [round(v, 3) for v in losses.tolist()])
    x_test = jax.random.uniform(k_test, (500, 2), minval=-1.5, maxval=1.5)
    mean, std = mixture(eqx.combine(params, static), x_test)
    inside = jnp.all(jnp.abs(x_test) < 1.0, axis=1)
    print(f"std inside {float(jnp.mean(std, where=inside)):.3f} outside {float(jnp.mean(std, where=~inside)):.3f}")
    print(f"rmse inside {float(jnp.sqrt(jnp.mean((mean - surface(x_test)) ** 2, where=inside))):.3f}")


if __name__ == "__main__":
    main()
''',
    "linen_timed_inference": '''\
"""Inference throughput of a linen CNN: warm-up first, then timed with a wait at the end of each repeat."""
import statistics
import time

import jax
import jax.numpy as jnp
from flax import linen as nn


class ConvNet(nn.Module):
    widths: tuple = (16, 32, 64)
    classes: int = 10

    @nn.compact
    def __call__(self, x):
        for w in self.widths:
            x = nn.relu(nn.Conv(w, (3, 3))(x))
            x = nn.avg_pool(x, (2, 2), strides=(2, 2))
        return nn.Dense(self.classes)(x.mean(axis=(1, 2)))


net = ConvNet()


@jax.jit
def classify(params, images):
    probs = jax.nn.softmax(net.apply(params, images), axis=-1)
    return jnp.argmax(probs, axis=-1), jnp.max(probs, axis=-1)


def throughput(params, batches, repeats=5):
    jax.block_until_ready(classify(params, batches[0]))
    rates = []
    for _ in range(repeats):
        start = time.perf_counter()
        results = [classify(params, b) for b in batches]
        jax.block_until_ready(results)
        seconds = time.perf_counter() - start
        rates.append(len(batches) * batches[0].shape[0] / seconds)
    return statistics.median(rates), results


def main():
    k_init, k_data = jax.random.split(jax.random.key(0))
    batches = list(jax.random.normal(k_data, (16, 64, 32, 32, 3)))
    params = jax.jit(net.init)(k_init, batches[0])
    rate, results = throughput(params, batches)
    labels = jnp.concatenate([label for label, _ in results])
    confidence = jnp.concatenate([c for _, c in results])
    counts = jnp.bincount(labels, length=10)
    print(f"{rate:.0f} images/s, mean confidence {float(confidence.mean()):.3f}, labels {counts.tolist()}")


if __name__ == "__main__":
    main()
''',
    "equinox_sharpness_hvp": '''\
"""Sharpness-aware look at training: equinox MLP, Hessian-vector products by jvp of grad."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree


class Probe:
    """Largest Hessian eigenvalue by power iteration."""

    def __init__(self, loss, iterations=20):
        def sharpness(flat, x, y, v):
            grad = jax.grad(loss)

            def hvp(v):
                return jax.jvp(lambda f: grad(f, x, y), (flat,), (v,))[1]

            def body(_, v):
                hv = hvp(v)
                return hv / jnp.linalg.norm(hv)

            v = jax.lax.fori_loop(0, iterations, body, v / jnp.linalg.norm(v))
            return v @ hvp(v), v

        self._run = jax.jit(sharpness)

    def __call__(self, flat, x, y, v):
        return self._run(flat, x, y, v)


def make_training(loss, tx, steps):
    @jax.jit
    def train(flat, opt_state, x, y):
        def body(carry, _):
            flat, s = carry
            value, g = jax.value_and_grad(loss)(flat, x, y)
            u, s = tx.update(g, s)
            return (optax.apply_updates(flat, u), s), value

        (flat, opt_state), values = jax.lax.scan(body, (flat, opt_state), length=steps)
        return flat, opt_state, values[-1]

    return train


def main():
    k_model, k_x, k_w, k_v = jax.random.split(jax.random.key(40), 4)
    x = jax.random.normal(k_x, (512, 10))
    y = jnp.cos(x @ jax.random.normal(k_w, (10,)))
    model = eqx.nn.MLP(10, "scalar", 64, 2, activation=jnp.tanh, key=k_model)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)

    def loss(flat, x, y):
        net = eqx.combine(unravel(flat), static)
        return jnp.mean((jax.vmap(net)(x) - y) ** 2)

    tx = optax.sgd(0.05)
    train, probe = make_training(loss, tx, 200), Probe(loss)
    opt_state = tx.init(flat)
    v = jax.random.normal(k_v, flat.shape)
    for epoch in range(10):
        flat, opt_state, value = train(flat, opt_state, x, y)
        top, v = probe(flat, x, y, v)
        print(f"epoch {epoch} loss {float(value):.5f} sharpness {float(top):.3f}")


if __name__ == "__main__":
    main()
''',
    "numpyro_svi": '''\
"""Poisson factor model with plates, fitted by SVI, then checked on held-out rows."""
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal


def simulate(rows, items, rank, seed=0):
    rng = np.random.default_rng(seed)
    left = rng.gamma(1.0, 1.0, size=(rows, rank))
    right = rng.gamma(1.0, 1.0, size=(items, rank))
    counts = rng.poisson(left @ right.T).astype(np.float32)
    return jax.device_put(counts)


def model(counts, rank):
    rows, items = counts.shape
    with numpyro.plate("rows_l", rows, dim=-2), numpyro.plate("rank_l", rank, dim=-1):
        left = numpyro.sample("left", dist.Gamma(1.0, 1.0))
    with numpyro.plate("items_r", items, dim=-2), numpyro.plate("rank_r", rank, dim=-1):
        right = numpyro.sample("right", dist.Gamma(1.0, 1.0))
    rate = left @ right.T + 1e-4
    with numpyro.plate("rows", rows, dim=-2), numpyro.plate("items", items, dim=-1):
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)


class Fit:
    def __init__(self, rank, lr, steps):
        self.rank = rank
        self.steps = steps
        self.guide = AutoNormal(model)
        schedule = optax.cosine_decay_schedule(lr, steps)
        self.svi = SVI(model, self.guide, optax.adam(schedule), Trace_ELBO())

    def run(self, key, counts):
        return self.svi.run(key, self.steps, counts, self.rank, progress_bar=False)

    def reconstruct(self, params):
        median = self.guide.median(params)
        return median["left"] @ median["right"].T


def main():
    counts = simulate(300, 120, rank=5)
    fit = Fit(rank=5, lr=0.03, steps=1500)
    result = fit.run(jax.random.key(0), counts)
    losses = np.asarray(result.losses)
    for i in range(0, len(losses), 500):
        print(f"step {i}: loss {losses[i]:.1f}")
    rate = fit.reconstruct(result.params)
    error = jnp.mean(jnp.abs(rate - counts)) / jnp.mean(counts)
    print(f"final loss {losses[-1]:.1f}, relative error {float(error):.3f}")


if __name__ == "__main__":
    main()
''',
    "diffrax_fit": '''\
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
''',
    "blackjax_nuts": '''\
"""NUTS with blackjax: window adaptation, then chains by vmap and scan."""
import argparse

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.stats import norm


class LogisticModel:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def logdensity(self, position):
        logits = self.x @ position["w"] + position["b"]
        loglik = jnp.sum(self.y * logits - jax.nn.softplus(logits))
        return loglik + jnp.sum(norm.logpdf(position["w"])) + norm.logpdf(position["b"])

    def init(self):
        return {"w": jnp.zeros(self.x.shape[1]), "b": jnp.zeros(())}


def simulate(n, d, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    w = rng.normal(size=d).astype(np.float32)
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-(x @ w - 0.3)))).astype(np.float32)
    return jax.device_put(x), jax.device_put(y), w


def make_runner(kernel, draws):
    def one_chain(key, state):
        def body(s, k):
            s, info = kernel.step(k, s)
            return s, (s.position, info.acceptance_rate)

        _, out = lax.scan(body, state, jax.random.split(key, draws))
        return out

    return jax.jit(jax.vmap(one_chain))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=300)
    args = parser.parse_args()
    x, y, w = simulate(200, 5, seed=0)
    model = LogisticModel(x, y)
    k_warm, k_run = jax.random.split(jax.random.key(0))
    warmup = blackjax.window_adaptation(blackjax.nuts, model.logdensity)
    (state, parameters), _ = warmup.run(k_warm, model.init(), num_steps=300)
    kernel = blackjax.nuts(model.logdensity, **parameters)
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (args.chains, *a.shape)), state)
    run = make_runner(kernel, args.draws)
    positions, rates = run(jax.random.split(k_run, args.chains), states)
    mean, rates = jax.device_get((positions["w"].mean(axis=(0, 1)), rates))
    print("posterior mean", np.round(mean, 2), "truth", np.round(w, 2))
    print(f"acceptance {rates.mean():.3f}")


if __name__ == "__main__":
    main()
''',
    "sharded_ensemble": '''\
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


class Batch(NamedTuple):
    x: jax.Array
    y: jax.Array


def place_batches(x, y, members, batch, sharding, seed):
    """Each member's own bootstrap batches, placed once: the data fits in memory."""
    rng = np.random.default_rng(seed)
    batches = []
    for _ in range(x.shape[0] // batch):
        idx = rng.integers(0, x.shape[0], size=(members, batch))
        batches.append(jax.device_put(Batch(x[idx], y[idx]), sharding))
    return batches


def loss_fn(params, batch):
    hidden = jnp.tanh(batch.x @ params["w1"] + params["b1"])
    return jnp.mean((hidden @ params["w2"] - batch.y) ** 2)


def init(key, d, width):
    k1, k2 = jax.random.split(key)
    return {
        "w1": jax.random.normal(k1, (d, width)) / jnp.sqrt(d),
        "b1": jnp.zeros(width),
        "w2": jax.random.normal(k2, (width,)) / jnp.sqrt(width),
    }


def make_step(optim):
    def step(params, opt_state, batch):
        loss, grads = jax.value_and_grad(loss_fn)(params, batch)
        updates, opt_state = optim.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    return jax.jit(jax.vmap(step))


def main():
    members = 8
    by_member = NamedSharding(Mesh(np.array(jax.devices()), ("member",)), P("member"))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8192, 32), dtype=np.float32)
    y = np.sin(x[:, 0] + 0.5 * x[:, 1]).astype(np.float32)
    batches = place_batches(x, y, members, 512, by_member, seed=1)
    keys = jax.random.split(jax.random.key(0), members)
    optim = optax.adam(3e-3)
    params = jax.vmap(init, in_axes=(0, None, None))(keys, 32, 64)
    params, opt_state = jax.device_put((params, jax.vmap(optim.init)(params)), by_member)
    step = make_step(optim)
    for epoch in range(30):
        for batch in batches:
            params, opt_state, losses = step(params, opt_state, batch)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: losses {np.round(np.asarray(losses), 4)}")


if __name__ == "__main__":
    main()
''',
    "particle_filter": '''\
"""Bootstrap particle filter of a stochastic volatility model, a grid of parameters by vmap."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm


class Theta(NamedTuple):
    mu: jax.Array
    phi: jax.Array
    sigma: jax.Array


def simulate(key, theta, length):
    k_h, k_y = jax.random.split(key)

    def body(h, z):
        h = theta.mu + theta.phi * (h - theta.mu) + theta.sigma * z
        return h, h

    _, h = lax.scan(body, jnp.asarray(theta.mu, jnp.float32), jax.random.normal(k_h, (length,)))
    return jnp.exp(0.5 * h) * jax.random.normal(k_y, (length,))


def systematic(key, log_w):
    n = log_w.shape[0]
    cdf = jnp.cumsum(jax.nn.softmax(log_w))
    points = (jax.random.uniform(key) + jnp.arange(n)) / n
    return jnp.clip(jnp.searchsorted(cdf, points), 0, n - 1)


def filter_loglik(theta, key, ys, particles):
    k_init, k_run = jax.random.split(key)
    std = theta.sigma / jnp.sqrt(1.0 - theta.phi**2)
    h0 = theta.mu + std * jax.random.normal(k_init, (particles,))

    def body(h, inputs):
        y, k = inputs
        k_move, k_pick = jax.random.split(k)
        h = theta.mu + theta.phi * (h - theta.mu)
        h = h + theta.sigma * jax.random.normal(k_move, h.shape)
        log_w = norm.logpdf(y, 0.0, jnp.exp(0.5 * h))
        gain = logsumexp(log_w) - jnp.log(particles)
        return h[systematic(k_pick, log_w)], gain

    _, gains = lax.scan(body, h0, (ys, jax.random.split(k_run, ys.shape[0])))
    return jnp.sum(gains)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=512)
    parser.add_argument("--length", type=int, default=500)
    args = parser.parse_args()
    k_sim, k_filter = jax.random.split(jax.random.key(0))
    ys = simulate(k_sim, Theta(-0.5, 0.95, 0.25), args.length)
    phis = jnp.linspace(0.8, 0.99, 12)
    grid = Theta(jnp.full(12, -0.5), phis, jnp.full(12, 0.25))
    run = jax.jit(jax.vmap(filter_loglik, in_axes=(0, 0, None, None)), static_argnums=3)
    totals = jnp.zeros(12)
    for key in jax.random.split(k_filter, 8):
        totals = totals + run(grid, jax.random.split(key, 12), ys, args.particles)
    loglik = jax.device_get(totals / 8)
    for phi, value in zip(jax.device_get(phis), loglik):
        print(f"phi {phi:.3f}: log-likelihood {value:.2f}")


if __name__ == "__main__":
    main()
''',
    "conjugate_gradient": '''\
"""Poisson inverse problem: matrix-free CG in a while_loop inside Gauss-Newton."""
import time
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


@dataclass(frozen=True)
class Problem:
    n: int = 512
    rounds: int = 24
    tol: float = 1e-4
    max_cg: int = 400
    weight: float = 0.05


class CGState(NamedTuple):
    x: jax.Array
    r: jax.Array
    p: jax.Array
    rr: jax.Array
    count: jax.Array


def blur(u):
    for axis in (0, 1):  # two passes, unrolled on purpose
        u = 0.25 * jnp.roll(u, 1, axis) + 0.5 * u + 0.25 * jnp.roll(u, -1, axis)
    return u


def forward(u):
    return blur(jnp.exp(u))


def objective_grad(u, data, weight):
    def objective(v):
        rate = forward(v)
        rough = jnp.sum((v - jnp.roll(v, 1, 0)) ** 2) + jnp.sum((v - jnp.roll(v, 1, 1)) ** 2)
        return 0.5 * jnp.sum((rate - data) ** 2) + weight * rough

    return jax.value_and_grad(objective)(u)


def gauss_newton_operator(u, weight):
    _, push = jax.linearize(forward, u)
    pull = jax.linear_transpose(push, u)

    def product(v):
        rough = sum(2 * v - jnp.roll(v, 1, a) - jnp.roll(v, -1, a) for a in (0, 1))
        return pull(push(v))[0] + 2.0 * weight * rough + 1e-3 * v

    return product


def cg(product, b, tol, max_iter):
    def cond(s):
        return (s.rr > tol**2 * jnp.vdot(b, b)) & (s.count < max_iter)

    def body(s):
        ap = product(s.p)
        alpha = s.rr / jnp.vdot(s.p, ap)
        x, r = s.x + alpha * s.p, s.r - alpha * ap
        rr = jnp.vdot(r, r)
        return CGState(x, r, r + rr / s.rr * s.p, rr, s.count + 1)

    start = CGState(jnp.zeros_like(b), b, b, jnp.vdot(b, b), jnp.zeros((), jnp.int32))
    final = lax.while_loop(cond, body, start)
    return final.x, final.count


@partial(jax.jit, static_argnums=2)
def newton_round(u, data, prob):
    value, g = objective_grad(u, data, prob.weight)
    delta, count = cg(gauss_newton_operator(u, prob.weight), -g, prob.tol, prob.max_cg)
    return u + 0.8 * delta, value, count


def main():
    prob = Problem()
    k_truth, k_noise = jax.random.split(jax.random.key(0))
    truth = blur(blur(blur(jax.random.normal(k_truth, (prob.n, prob.n)))))
    data = forward(truth) + 0.02 * jax.random.normal(k_noise, truth.shape)
    u = jnp.zeros_like(truth)
    log = []
    start = time.perf_counter()
    for _ in range(prob.rounds):
        u, value, count = newton_round(u, data, prob)
        log.append((value, count))
    jax.block_until_ready(u)
    elapsed = time.perf_counter() - start
    for i, (value, count) in enumerate(jax.device_get(log)):
        print(f"round {i}: objective {value:.4f}, {count} CG iterations")
    error = jnp.sqrt(jnp.mean((u - truth) ** 2))
    print(f"error {float(error):.4f}, {elapsed:.2f} s including the compilation")


if __name__ == "__main__":
    main()
''',
    "replica_exchange": '''\
"""Parallel tempering of a Gaussian mixture in many dimensions, swaps inside the scan."""
import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


class Replicas(NamedTuple):
    x: jax.Array
    logp: jax.Array
    swaps: jax.Array


def make_target(centres):
    norms = jnp.sum(centres**2, axis=1)

    def log_density(x):
        d2 = jnp.sum(x * x) - 2.0 * centres @ x + norms
        return logsumexp(-0.5 * d2)

    return log_density


def move(log_density, replicas, betas, key, scale):
    k_prop, k_acc = jax.random.split(key)
    noise = jax.random.normal(k_prop, replicas.x.shape)
    proposal = replicas.x + scale / jnp.sqrt(betas)[:, None] * noise
    logp = jax.vmap(log_density)(proposal)
    accept = jnp.log(jax.random.uniform(k_acc, logp.shape)) < betas * (logp - replicas.logp)
    x = jnp.where(accept[:, None], proposal, replicas.x)
    return replicas._replace(x=x, logp=jnp.where(accept, logp, replicas.logp))


def swap(replicas, betas, key, offset):
    n = betas.shape[0]
    index = jnp.arange(n)
    partner = jnp.where((index - offset) % 2 == 0, index + 1, index - 1)
    partner = jnp.where((partner < 0) | (partner >= n), index, partner)
    low = jnp.minimum(index, partner)
    u = jax.random.uniform(key, (n,))[low]
    log_ratio = (betas - betas[partner]) * (replicas.logp[partner] - replicas.logp)
    accept = (jnp.log(u) < log_ratio) & (partner != index)
    source = jnp.where(accept, partner, index)
    return Replicas(replicas.x[source], replicas.logp[source], replicas.swaps + accept)


def build(log_density, betas, scale):
    @partial(jax.jit, static_argnames="steps")
    def run(replicas, key, steps):
        def body(r, inputs):
            i, k = inputs
            k_move, k_swap = jax.random.split(k)
            r = move(log_density, r, betas, k_move, scale)
            r = swap(r, betas, k_swap, i % 2)
            return r, r.x[0, :2]

        return lax.scan(body, replicas, (jnp.arange(steps), jax.random.split(key, steps)))

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--steps", type=int, default=10000)
    args = parser.parse_args()
    k_centres, k_init, k_warm, k_run = jax.random.split(jax.random.key(0), 4)
    log_density = make_target(4.0 * jax.random.normal(k_centres, (12, args.dim)))
    betas = jnp.geomspace(1.0, 0.02, 16)
    x = jax.random.normal(k_init, (16, args.dim))
    replicas = Replicas(x, jax.vmap(log_density)(x), jnp.zeros(16, jnp.int32))
    run = build(log_density, betas, scale=0.6)
    replicas, _ = run(replicas, k_warm, args.steps)
    replicas = replicas._replace(swaps=jnp.zeros(16, jnp.int32))
    for key in jax.random.split(k_run, 4):
        replicas, trace = run(replicas, key, args.steps)
        print("mean of the cold replica", np.round(np.asarray(trace.mean(axis=0)), 2))
    print("swap rates", np.round(np.asarray(replicas.swaps) / (4 * args.steps), 2))


if __name__ == "__main__":
    main()
''',
}
