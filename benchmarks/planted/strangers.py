"""Thirty programs with one pitfall each, by two people who knew neither the rules nor one another's programs.

Audited as they came, and no rule was mended for them before that: `docs/about/field-notes.md`.
"""

from __future__ import annotations

from planted.planted import Planted

STRANGERS = (
    Planted(
        "the validation step is never jitted, so every layer is dispatched op by op",
        ("eager-operations",),
        '''\
"""Tabular classifier in flax.linen, with validation beside training."""
import dataclasses

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training import train_state


@dataclasses.dataclass(frozen=True)
class Config:
    features: int = 48
    classes: int = 7
    width: int = 96
    batch: int = 64
    steps: int = 600
    eval_every: int = 30
    eval_batches: int = 16
    seed: int = 3


class Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        h = nn.gelu(nn.Dense(self.width)(h))
        return x + nn.Dense(x.shape[-1])(h)


class Net(nn.Module):
    cfg: Config

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.cfg.width)(x)
        for _ in range(3):
            x = Block(self.cfg.width)(x)
        return nn.Dense(self.cfg.classes)(nn.LayerNorm()(x))


CFG = Config()
NET = Net(CFG)


def make_data(key, n):
    kx, kw = jax.random.split(key)
    x = jax.random.normal(kx, (n, CFG.features))
    w = jax.random.normal(kw, (CFG.features, CFG.classes))
    return x, jnp.argmax(jnp.tanh(x) @ w, axis=-1)


@jax.jit
def train_step(state, x, y, key):
    idx = jax.random.randint(jax.random.fold_in(key, state.step), (CFG.batch,), 0, x.shape[0])

    def loss_fn(params):
        logits = state.apply_fn(params, x[idx])
        return optax.softmax_cross_entropy_with_integer_labels(logits, y[idx]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    return state.apply_gradients(grads=grads), loss


def eval_step(params, x, y):  # here
    logits = NET.apply(params, x)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, jnp.mean(jnp.argmax(logits, -1) == y)


def validate(params, batches):
    losses, accs = zip(*(eval_step(params, x, y) for x, y in batches))
    return float(jnp.stack(losses).mean()), float(jnp.stack(accs).mean())


def main():
    k_data, k_init, k_train = jax.random.split(jax.random.key(CFG.seed), 3)
    n_val = CFG.eval_batches * CFG.batch
    x, y = make_data(k_data, 8192 + n_val)
    x_val = x[:n_val].reshape(CFG.eval_batches, CFG.batch, -1)
    y_val = y[:n_val].reshape(CFG.eval_batches, CFG.batch)
    val = list(zip(x_val, y_val))
    x, y = x[n_val:], y[n_val:]
    params = jax.jit(NET.init)(k_init, x[:1])
    state = train_state.TrainState.create(apply_fn=NET.apply, params=params, tx=optax.adamw(1e-3))
    for step in range(1, CFG.steps + 1):
        state, loss = train_step(state, x, y, k_train)
        if step % CFG.eval_every == 0:
            vl, va = validate(state.params, val)
            print(f"step {step:4d} val loss {vl:.4f} acc {va:.3f}")


if __name__ == "__main__":
    main()
''',
        (("def eval_step(params, x, y):  # here", "@jax.jit\ndef eval_step(params, x, y):"),),
    ),
    Planted(
        "a new filter_jit of a fresh lambda is made in every epoch, so evaluation compiles each time",
        ("jit-in-loop",),
        '''\
"""Convolutional signal classifier in equinox; accuracy after every epoch."""
import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class SignalNet(eqx.Module):
    conv1: eqx.nn.Conv1d
    conv2: eqx.nn.Conv1d
    norm: eqx.nn.LayerNorm
    drop: eqx.nn.Dropout
    head: eqx.nn.MLP

    def __init__(self, key, channels=12, classes=5):
        k1, k2, k3 = jax.random.split(key, 3)
        self.conv1 = eqx.nn.Conv1d(1, channels, 5, stride=2, key=k1)
        self.conv2 = eqx.nn.Conv1d(channels, channels, 5, stride=2, key=k2)
        self.norm = eqx.nn.LayerNorm(channels)
        self.drop = eqx.nn.Dropout(0.1)
        self.head = eqx.nn.MLP(channels, classes, 64, 2, key=k3)

    def __call__(self, x, key=None):
        h = jax.nn.relu(self.conv1(x[None]))
        h = jax.nn.relu(self.conv2(h)).mean(axis=-1)
        return self.head(self.drop(self.norm(h), key=key))


def synth(key, n, length=64, classes=5):
    k1, k2, k3 = jax.random.split(key, 3)
    y = jax.random.randint(k1, (n,), 0, classes)
    t = jnp.linspace(0.0, 1.0, length)
    phase = jax.random.uniform(k2, (n, 1)) * 6.28
    x = jnp.sin(6.28 * (y[:, None] + 1) * 2 * t + phase)
    return x + 0.3 * jax.random.normal(k3, x.shape), y


class Trainer:
    def __init__(self, lr):
        self.tx = optax.adam(lr)

    @eqx.filter_jit
    def epoch(self, model, opt_state, x, y, key):
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def loss_fn(params, xb, yb, k):
            m = eqx.combine(params, static)
            logits = jax.vmap(m)(xb, jax.random.split(k, xb.shape[0]))
            return optax.softmax_cross_entropy_with_integer_labels(logits, yb).mean()

        def body(carry, batch):
            params, opt_state = carry
            loss, grads = jax.value_and_grad(loss_fn)(params, *batch)
            updates, opt_state = self.tx.update(grads, opt_state, params)
            return (optax.apply_updates(params, updates), opt_state), loss

        keys = jax.random.split(key, x.shape[0])
        (params, opt_state), losses = jax.lax.scan(body, (params, opt_state), (x, y, keys))
        return eqx.combine(params, static), opt_state, losses.mean()


@eqx.filter_jit
def predict(model, x):
    return jax.vmap(lambda s: model(s))(x)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=24)
    ap.add_argument("--batch", type=int, default=32)
    args = ap.parse_args()
    k_model, k_data, k_test, key = jax.random.split(jax.random.key(0), 4)
    x, y = synth(k_data, args.batch * 16)
    x, y = x.reshape(16, args.batch, -1), y.reshape(16, args.batch)
    x_test, y_test = synth(k_test, 256)
    model = SignalNet(k_model)
    trainer = Trainer(2e-3)
    opt_state = trainer.tx.init(eqx.filter(model, eqx.is_inexact_array))
    for epoch in range(args.epochs):
        key, sub = jax.random.split(key)
        model, opt_state, loss = trainer.epoch(model, opt_state, x, y, sub)
        frozen = eqx.nn.inference_mode(model)
        logits = eqx.filter_jit(jax.vmap(lambda s: frozen(s)))(x_test)  # here
        acc = jnp.mean(jnp.argmax(logits, -1) == y_test)
        print(f"epoch {epoch:2d} loss {float(loss):.4f} acc {float(acc):.3f}")


if __name__ == "__main__":
    main()
''',
        (("eqx.filter_jit(jax.vmap(lambda s: frozen(s)))(x_test)  # here", "predict(frozen, x_test)"),),
    ),
    Planted(
        "the Python float in the initial state is weakly typed, so the update compiles a second time",
        ("compiled-twice",),
        '''\
"""A small linen encoder on synthetic sequences; the smoothed loss is kept in the state."""
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax import struct


class EncoderLayer(nn.Module):
    heads: int
    dim: int

    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(h, h)
        h = nn.LayerNorm()(x)
        return x + nn.Dense(self.dim)(nn.gelu(nn.Dense(2 * self.dim)(h)))


class Encoder(nn.Module):
    vocab: int = 64
    dim: int = 32
    layers: int = 4

    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(self.vocab, self.dim)(tokens)
        x = x + self.param("pos", nn.initializers.normal(0.02), (tokens.shape[1], self.dim))
        for _ in range(self.layers):
            x = EncoderLayer(4, self.dim)(x)
        return nn.Dense(2)(nn.LayerNorm()(x).mean(axis=1))


@struct.dataclass
class State:
    step: jax.Array
    params: Any
    opt_state: Any
    loss_ema: jax.Array


MODEL = Encoder()
TX = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(2e-3, 150)))


@jax.jit
def create_params(key, tokens):
    return MODEL.init(key, tokens)


def create_state(key, tokens):
    params = create_params(key, tokens)
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        opt_state=TX.init(params),
        loss_ema=0.7,  # here
    )


@jax.jit
def update(state, tokens, labels, key):
    idx = jax.random.randint(jax.random.fold_in(key, state.step), (16,), 0, tokens.shape[0])

    def loss_fn(p):
        logits = MODEL.apply(p, tokens[idx])
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels[idx]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    updates, opt_state = TX.update(grads, state.opt_state, state.params)
    return State(
        step=state.step + 1,
        params=optax.apply_updates(state.params, updates),
        opt_state=opt_state,
        loss_ema=0.95 * state.loss_ema + 0.05 * loss,
    )


def main():
    k_tok, k_init, k_run = jax.random.split(jax.random.key(11), 3)
    tokens = jax.random.randint(k_tok, (1024, 16), 0, 64)
    labels = (tokens[:, 0] > tokens[:, 1]).astype(jnp.int32)
    state = create_state(k_init, tokens[:16])
    for step in range(1, 151):
        state = update(state, tokens, labels, k_run)
        if step % 50 == 0:
            print(f"step {step} smoothed loss {float(state.loss_ema):.4f}")


if __name__ == "__main__":
    main()
''',
        (("loss_ema=0.7,  # here", "loss_ema=jnp.full((), 0.7, jnp.float32),"),),
    ),
    Planted(
        "word embedding by a one-hot matrix product",
        ("one-hot-matmul",),
        '''\
"""Bag-of-words topic model in flax.linen."""
import functools

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

VOCAB, DIM, TOPICS, WORDS, BATCH = 6144, 64, 8, 32, 48


class WordTable(nn.Module):
    vocab: int
    dim: int

    def setup(self):
        self.table = self.param("table", nn.initializers.normal(0.05), (self.vocab, self.dim))

    def lookup(self, ids):
        return jax.nn.one_hot(ids, self.vocab) @ self.table  # here

    def penalty(self):
        return jnp.mean(jnp.square(self.table))


class TopicNet(nn.Module):
    def setup(self):
        self.words = WordTable(VOCAB, DIM)
        self.attn = nn.Dense(1)
        self.hidden = nn.Dense(64)
        self.out = nn.Dense(TOPICS)

    def __call__(self, ids):
        e = self.words.lookup(ids)
        w = jax.nn.softmax(self.attn(e), axis=1)
        h = nn.relu(self.hidden(jnp.sum(w * e, axis=1)))
        return self.out(h), self.words.penalty()


def corpus(key, n):
    k1, k2 = jax.random.split(key)
    topic = jax.random.randint(k1, (n,), 0, TOPICS)
    lo = topic * (VOCAB // TOPICS)
    words = lo[:, None] + jax.random.randint(k2, (n, WORDS), 0, VOCAB // 4)
    return words % VOCAB, topic


net = TopicNet()
tx = optax.adam(optax.warmup_cosine_decay_schedule(0.0, 3e-3, 20, 100))


def loss_fn(params, ids, topic):
    logits, pen = net.apply(params, ids)
    ce = optax.softmax_cross_entropy_with_integer_labels(logits, topic).mean()
    return ce + 1e-4 * pen, jnp.mean(jnp.argmax(logits, -1) == topic)


@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, opt_state, ids, topic, key):
    pick = jax.random.randint(key, (BATCH,), 0, ids.shape[0])
    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(params, ids[pick], topic[pick])
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss, acc


def main():
    k_data, k_init, key = jax.random.split(jax.random.key(5), 3)
    ids, topic = corpus(k_data, 4096)
    params = jax.jit(net.init)(k_init, ids[:2])
    opt_state = tx.init(params)
    for i in range(1, 101):
        key, sub = jax.random.split(key)
        params, opt_state, loss, acc = step(params, opt_state, ids, topic, sub)
        if i % 50 == 0:
            print(f"{i:4d} loss {float(loss):.4f} acc {float(acc):.3f}")


if __name__ == "__main__":
    main()
''',
        (("jax.nn.one_hot(ids, self.vocab) @ self.table  # here", "jnp.take(self.table, ids, axis=0)"),),
    ),
    Planted(
        "sqrt inside where has an infinite gradient on the diagonal: NaN parameters",
        ("where-gradient",),
        '''\
"""Metric embedding with equinox: latent distances should match given dissimilarities."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Embedder(eqx.Module):
    net: eqx.nn.MLP
    log_scale: jax.Array

    def __init__(self, d_in, d_out, key):
        self.net = eqx.nn.MLP(d_in, d_out, 64, 2, activation=jax.nn.tanh, key=key)
        self.log_scale = jnp.zeros(())

    def __call__(self, x):
        return jnp.exp(self.log_scale) * self.net(x)


def pairwise(z):
    sq = jnp.sum(z * z, axis=-1)
    d2 = jnp.maximum(sq[:, None] + sq[None, :] - 2.0 * z @ z.T, 0.0)
    d2 = d2 * (1.0 - jnp.eye(z.shape[0]))
    return jnp.where(d2 > 0.0, jnp.sqrt(d2), 0.0)  # here


def stress(model, x, target):
    d = pairwise(jax.vmap(model)(x))
    return jnp.mean((d - target) ** 2)


class Fit:
    """Minibatch stress minimisation; batches are sampled on the device."""

    def __init__(self, lr=2e-3, batch=128):
        self.tx = optax.chain(optax.clip_by_global_norm(5.0), optax.adam(lr))
        self.batch = batch

    def init(self, model):
        return self.tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def __call__(self, model, opt_state, x, target, key):
        idx = jax.random.permutation(key, x.shape[0])[: self.batch]
        loss, grads = eqx.filter_value_and_grad(stress)(model, x[idx], target[idx][:, idx])
        updates, opt_state = self.tx.update(grads, opt_state)
        return eqx.apply_updates(model, updates), opt_state, loss


def main():
    k_data, k_mix, k_model, key = jax.random.split(jax.random.key(21), 4)
    latent = jax.random.normal(k_data, (512, 3))
    x = jnp.tanh(latent @ jax.random.normal(k_mix, (3, 20)))
    diff = latent[:, None, :] - latent[None, :, :]
    target = jnp.linalg.norm(diff, axis=-1)
    model = Embedder(20, 3, k_model)
    fit = Fit()
    opt_state = fit.init(model)
    for i in range(1, 1501):
        key, sub = jax.random.split(key)
        model, opt_state, loss = fit(model, opt_state, x, target, sub)
        if i % 500 == 0:
            print(f"iter {i} stress {float(loss):.5f}")
    print("final stress", float(loss), "scale", float(jnp.exp(model.log_scale)))


if __name__ == "__main__":
    main()
''',
        (
            (
                "return jnp.where(d2 > 0.0, jnp.sqrt(d2), 0.0)  # here",
                "return jnp.where(d2 > 0.0, jnp.sqrt(jnp.where(d2 > 0.0, d2, 1.0)), 0.0)",
            ),
        ),
        is_about_results=True,
    ),
    Planted(
        "all Monte Carlo dropout draws use one key, so the spread is zero",
        ("key-reuse",),
        '''\
"""Regression with equinox dropout; predictive spread by Monte Carlo dropout."""
import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class Settings:
    steps: int = 2000
    batch: int = 64
    rate: float = 0.2
    samples: int = 64
    lr: float = 3e-3


class DropoutNet(eqx.Module):
    layers: list
    drop: eqx.nn.Dropout

    def __init__(self, rate, key):
        k1, k2, k3 = jax.random.split(key, 3)
        self.layers = [eqx.nn.Linear(1, 64, key=k1), eqx.nn.Linear(64, 64, key=k2), eqx.nn.Linear(64, 1, key=k3)]
        self.drop = eqx.nn.Dropout(rate)

    def __call__(self, x, key):
        k1, k2 = jax.random.split(key)
        x = self.drop(jax.nn.relu(self.layers[0](x)), key=k1)
        x = self.drop(jax.nn.relu(self.layers[1](x)), key=k2)
        return self.layers[2](x)[0]


def forward(model, x, key):
    return jax.vmap(model)(x, jax.random.split(key, x.shape[0]))


@eqx.filter_jit
def fit(model, x, y, key, cfg):
    tx = optax.adam(cfg.lr)
    params, static = eqx.partition(model, eqx.is_inexact_array)

    def loss_fn(p, xb, yb, k):
        return jnp.mean((forward(eqx.combine(p, static), xb, k) - yb) ** 2)

    def body(carry, k):
        p, s = carry
        k_idx, k_drop = jax.random.split(k)
        idx = jax.random.randint(k_idx, (cfg.batch,), 0, x.shape[0])
        loss, g = jax.value_and_grad(loss_fn)(p, x[idx], y[idx], k_drop)
        u, s = tx.update(g, s)
        return (optax.apply_updates(p, u), s), loss

    (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), jax.random.split(key, cfg.steps))
    return eqx.combine(params, static), losses


@eqx.filter_jit
def predictive(model, grid, key, samples):
    draws = jax.lax.map(lambda _: forward(model, grid, key), jnp.arange(samples))  # here
    return draws.mean(axis=0), draws.std(axis=0)


def main():
    cfg = Settings()
    k_x, k_n, k_model, k_fit, k_pred = jax.random.split(jax.random.key(2), 5)
    x = jax.random.uniform(k_x, (1024, 1), minval=-2.0, maxval=2.0)
    y = jnp.sin(3 * x[:, 0]) + 0.1 * jax.random.normal(k_n, (1024,))
    model, losses = fit(DropoutNet(cfg.rate, k_model), x, y, k_fit, cfg)
    print(f"loss {float(losses[:50].mean()):.4f} -> {float(losses[-50:].mean()):.4f}")
    grid = jnp.linspace(-3.0, 3.0, 201)[:, None]
    mean, std = predictive(model, grid, k_pred, cfg.samples)
    inside = jnp.abs(grid[:, 0]) < 2.0
    print(f"spread inside {float(jnp.mean(std, where=inside)):.4f} outside {float(jnp.mean(std, where=~inside)):.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "lambda _: forward(model, grid, key), jnp.arange(samples))  # here",
                "lambda k: forward(model, grid, k), jax.random.split(key, samples))",
            ),
        ),
        is_about_results=True,
    ),
    Planted(
        "the batch is looped over in Python inside the jitted step in place of vmap",
        ("python-loop-vmap",),
        '''\
"""Set classifier (deep sets) in equinox."""
import logging

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

log = logging.getLogger("deepsets")


class DeepSet(eqx.Module):
    phi: eqx.nn.MLP
    rho: eqx.nn.MLP

    def __init__(self, key, d=3, width=32, classes=4):
        k1, k2 = jax.random.split(key)
        self.phi = eqx.nn.MLP(d, width, width, 2, key=k1)
        self.rho = eqx.nn.MLP(width, classes, width, 1, key=k2)

    def __call__(self, points):
        return self.rho(jax.vmap(self.phi)(points).mean(axis=0))


def clouds(key, n, points=24):
    ks, ky, kn = jax.random.split(key, 3)
    y = jax.random.randint(ky, (n,), 0, 4)
    radius = 0.5 + 0.4 * y.astype(jnp.float32)
    dirs = jax.random.normal(ks, (n, points, 3))
    dirs = dirs / jnp.linalg.norm(dirs, axis=-1, keepdims=True)
    return dirs * radius[:, None, None] + 0.1 * jax.random.normal(kn, dirs.shape), y


def batch_logits(model, clouds):
    return jnp.stack([model(c) for c in clouds])  # here


def objective(model, x, y):
    logits = batch_logits(model, x)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, jnp.mean(jnp.argmax(logits, axis=-1) == y)


tx = optax.adam(2e-3)


@eqx.filter_jit
def train_step(model, opt_state, x, y, key):
    idx = jax.random.randint(key, (32,), 0, x.shape[0])
    (loss, acc), grads = eqx.filter_value_and_grad(objective, has_aux=True)(model, x[idx], y[idx])
    updates, opt_state = tx.update(grads, opt_state)
    return eqx.apply_updates(model, updates), opt_state, loss, acc


def main():
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    k_data, k_model, key = jax.random.split(jax.random.key(9), 3)
    x, y = clouds(k_data, 2048)
    model = DeepSet(k_model)
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for i in range(1, 601):
        key, sub = jax.random.split(key)
        model, opt_state, loss, acc = train_step(model, opt_state, x, y, sub)
        if i % 200 == 0:
            log.info("step %d loss %.4f acc %.3f", i, float(loss), float(acc))


if __name__ == "__main__":
    main()
''',
        (("jnp.stack([model(c) for c in clouds])  # here", "jax.vmap(model)(clouds)"),),
    ),
    Planted(
        "a debug callback to the host in every training step",
        ("host-callback",),
        '''\
"""Small linen policy fitted by behaviour cloning, with the gradient norm recorded."""
import statistics

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState

STEPS, BATCH = 6000, 16


class Policy(nn.Module):
    actions: int = 4

    @nn.compact
    def __call__(self, obs):
        h = nn.tanh(nn.Dense(32)(obs))
        h = nn.tanh(nn.Dense(32)(h))
        return nn.Dense(self.actions)(h)


class Recorder:
    def __init__(self):
        self.norms = []

    def __call__(self, value):
        self.norms.append(value)

    def summary(self):
        tail = [float(v) for v in self.norms[-100:]]
        return statistics.fmean(tail)


recorder = Recorder()


def demonstrations(key, n):
    k1, k2 = jax.random.split(key)
    obs = jax.random.normal(k1, (n, 8))
    return obs, jnp.argmax(obs @ jax.random.normal(k2, (8, 4)), axis=-1)


def guarded(grads):
    norm = optax.global_norm(grads)
    jax.debug.callback(recorder, norm)  # here
    scale = jnp.minimum(1.0, 1.0 / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, grads), norm


@jax.jit
def step(state, obs, act, key):
    idx = jax.random.randint(jax.random.fold_in(key, state.step), (BATCH,), 0, obs.shape[0])

    def loss_fn(p):
        logits = state.apply_fn(p, obs[idx])
        return optax.softmax_cross_entropy_with_integer_labels(logits, act[idx]).mean()

    loss, grads = jax.value_and_grad(loss_fn)(state.params)
    grads, norm = guarded(grads)
    return state.apply_gradients(grads=grads), loss, norm


def main():
    k_demo, k_init, k_run = jax.random.split(jax.random.key(1), 3)
    obs, act = demonstrations(k_demo, 4096)
    policy = Policy()
    state = TrainState.create(
        apply_fn=policy.apply, params=jax.jit(policy.init)(k_init, obs[:1]), tx=optax.sgd(0.05, momentum=0.9)
    )
    for i in range(1, STEPS + 1):
        state, loss, norm = step(state, obs, act, k_run)
        if i % 1500 == 0:
            print(f"step {i} loss {float(loss):.4f}")
    jax.effects_barrier()
    print(f"mean gradient norm of the last steps {recorder.summary():.4f}")


if __name__ == "__main__":
    main()
''',
        (
            ("    jax.debug.callback(recorder, norm)  # here\n", ""),
            (
                "state, loss, norm = step(state, obs, act, k_run)\n",
                "state, loss, norm = step(state, obs, act, k_run)\n        recorder(norm)\n",
            ),
        ),
    ),
    Planted(
        "a Python float temperature is static under filter_jit, so each epoch compiles anew",
        ("static-churn",),
        '''\
"""Discrete autoencoder (Gumbel-softmax) in equinox with an annealed temperature."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class GumbelAE(eqx.Module):
    enc: eqx.nn.MLP
    dec: eqx.nn.MLP
    slots: int = eqx.field(static=True)
    codes: int = eqx.field(static=True)

    def __init__(self, d, slots, codes, key):
        k1, k2 = jax.random.split(key)
        self.enc = eqx.nn.MLP(d, slots * codes, 64, 2, key=k1)
        self.dec = eqx.nn.MLP(slots * codes, d, 64, 2, key=k2)
        self.slots, self.codes = slots, codes

    def __call__(self, x, key, temperature):
        logits = self.enc(x).reshape(self.slots, self.codes)
        noise = jax.random.gumbel(key, logits.shape)
        z = jax.nn.softmax((logits + noise) / temperature, axis=-1)
        return self.dec(z.reshape(-1))


def annealed(epoch, start=1.0, rate=0.93, floor=0.2):
    return max(floor, start * rate**epoch)


class Annealer:
    def __init__(self, lr, batches, batch):
        self.tx = optax.adam(lr)
        self.batches, self.batch = batches, batch

    def start(self, model):
        return self.tx.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit
    def run_epoch(self, model, opt_state, x, key, temperature):
        params, static = eqx.partition(model, eqx.is_inexact_array)

        def loss_fn(p, xb, k):
            m = eqx.combine(p, static)
            rec = jax.vmap(m, in_axes=(0, 0, None))(xb, jax.random.split(k, self.batch), temperature)
            return jnp.mean((rec - xb) ** 2)

        def body(carry, inp):
            p, s = carry
            xb, k = inp
            loss, g = jax.value_and_grad(loss_fn)(p, xb, k)
            u, s = self.tx.update(g, s)
            return (optax.apply_updates(p, u), s), loss

        k_perm, k_noise = jax.random.split(key)
        xs = jax.random.permutation(k_perm, x).reshape(self.batches, self.batch, -1)
        (params, opt_state), losses = jax.lax.scan(
            body, (params, opt_state), (xs, jax.random.split(k_noise, self.batches))
        )
        return eqx.combine(params, static), opt_state, losses.mean()


def main():
    k_a, k_b, k_model, key = jax.random.split(jax.random.key(4), 4)
    x = jnp.tanh(jax.random.normal(k_a, (1024, 4)) @ jax.random.normal(k_b, (4, 24)))
    model = GumbelAE(24, 8, 6, k_model)
    runner = Annealer(2e-3, 16, 64)
    opt_state = runner.start(model)
    for epoch in range(6):
        key, sub = jax.random.split(key)
        tau = annealed(epoch)  # here
        model, opt_state, loss = runner.run_epoch(model, opt_state, x, sub, tau)  # here
        print(f"epoch {epoch} mse {float(loss):.4f}")


if __name__ == "__main__":
    main()
''',
        (
            ("tau = annealed(epoch)  # here", "tau = jnp.asarray(annealed(epoch))"),
            ("sub, tau)  # here", "sub, tau)"),
        ),
    ),
    Planted(
        "the sequence grows by one token per call, so the decoder compiles for each length",
        ("growing-shapes",),
        '''\
"""Character model in flax.linen: a short training, then greedy continuation of prompts."""
import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

VOCAB, CONTEXT, DIM = 24, 48, 32


class CausalBlock(nn.Module):
    @nn.compact
    def __call__(self, x):
        h = nn.LayerNorm()(x)
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(h, h, mask=mask)
        return x + nn.Dense(DIM)(nn.gelu(nn.Dense(2 * DIM)(nn.LayerNorm()(x))))


class CharModel(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        pos = self.param("pos", nn.initializers.normal(0.02), (CONTEXT, DIM))
        x = nn.Embed(VOCAB, DIM)(tokens) + pos[: tokens.shape[1]]
        for _ in range(2):
            x = CausalBlock()(x)
        return nn.Dense(VOCAB)(nn.LayerNorm()(x))


model = CharModel()
tx = optax.adamw(3e-3)


def text(key, n):
    start, stride = jax.random.split(key)
    a = jax.random.randint(start, (n, 1), 0, VOCAB)
    b = jax.random.randint(stride, (n, 1), 1, 4)
    return (a + b * jnp.arange(CONTEXT)) % VOCAB


@jax.jit
def fit(params, data, key):
    def loss_fn(p, batch):
        logits = model.apply(p, batch[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:]).mean()

    def body(carry, k):
        p, s = carry
        batch = data[jax.random.randint(k, (16,), 0, data.shape[0])]
        loss, g = jax.value_and_grad(loss_fn)(p, batch)
        u, s = tx.update(g, s, p)
        return (optax.apply_updates(p, u), s), loss

    (params, _), losses = jax.lax.scan(body, (params, tx.init(params)), jax.random.split(key, 150))
    return params, losses


@jax.jit
def greedy(params, seq):
    return jnp.argmax(model.apply(params, seq)[:, -1], axis=-1)


def continue_text(params, prompt, new):
    seq = prompt
    for _ in range(new):
        seq = jnp.concatenate([seq, greedy(params, seq)[:, None]], axis=1)  # here
    return seq


def main():
    k_data, k_test, k_init, k_fit = jax.random.split(jax.random.key(8), 4)
    data = text(k_data, 2048)
    params = jax.jit(model.init)(k_init, data[:1])
    params, losses = fit(params, data, k_fit)
    print(f"loss {float(losses[0]):.3f} -> {float(losses[-1]):.3f}")
    truth = text(k_test, 32)
    out = continue_text(params, truth[:, :32], 12)
    print(f"continuation accuracy {float(jnp.mean(out[:, 32:44] == truth[:, 32:44])):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "def greedy(params, seq):\n    return jnp.argmax(model.apply(params, seq)[:, -1], axis=-1)",
                "def greedy(params, seq, t):\n    return seq.at[:, t].set(jnp.argmax(model.apply(params, seq)[:, t - 1], axis=-1))",
            ),
            (
                "    seq = prompt\n    for _ in range(new):\n        seq = jnp.concatenate([seq, greedy(params, seq)[:, None]], axis=1)  # here",
                "    seq = jnp.pad(prompt, ((0, 0), (0, new)))\n    for t in range(prompt.shape[1], seq.shape[1]):\n        seq = greedy(params, seq, t)",
            ),
        ),
    ),
    Planted(
        "squared distances through an N×M×D difference instead of a matrix product",
        ("broadcast-matmul",),
        '''\
"""Prototype network (vector quantised classes) with flax.nnx."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Encoder(nnx.Module):
    def __init__(self, d_in, d_out, rngs):
        self.hidden = nnx.Linear(d_in, 64, rngs=rngs)
        self.out = nnx.Linear(64, d_out, rngs=rngs)

    def __call__(self, x):
        return self.out(nnx.relu(self.hidden(x)))


class PrototypeNet(nnx.Module):
    def __init__(self, d_in, dim, prototypes, rngs):
        self.encoder = Encoder(d_in, dim, rngs)
        self.prototypes = nnx.Param(jax.random.normal(rngs.params(), (prototypes, dim)))

    def distances(self, z):
        p = self.prototypes[...]
        return jnp.sum((z[:, None, :] - p[None, :, :]) ** 2, axis=-1)  # here

    def __call__(self, x):
        d = self.distances(self.encoder(x))
        groups = d.reshape(d.shape[0], 8, -1)
        return jax.nn.logsumexp(-0.1 * groups, axis=-1)


def blobs(key, n, d):
    k1, k2, k3 = jax.random.split(key, 3)
    centres = 2.0 * jax.random.normal(k1, (8, d))
    y = jax.random.randint(k2, (n,), 0, 8)
    return centres[y] + jax.random.normal(k3, (n, d)), y


def loss_fn(model, x, y):
    logits = model(x)
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, jnp.mean(jnp.argmax(logits, -1) == y)


@nnx.jit
def train_step(model, optimizer, x, y, key):
    idx = jax.random.randint(key, (256,), 0, x.shape[0])
    (loss, acc), grads = nnx.value_and_grad(loss_fn, has_aux=True)(model, x[idx], y[idx])
    optimizer.update(model, grads)
    return loss, acc


def main():
    k_data, key = jax.random.split(jax.random.key(6))
    x, y = blobs(k_data, 4096, 16)
    model = PrototypeNet(16, 64, 1024, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    for i in range(1, 41):
        key, sub = jax.random.split(key)
        loss, acc = train_step(model, optimizer, x, y, sub)
        if i % 20 == 0:
            print(f"step {i} loss {float(loss):.4f} acc {float(acc):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "return jnp.sum((z[:, None, :] - p[None, :, :]) ** 2, axis=-1)  # here",
                "return jnp.sum(z * z, -1)[:, None] + jnp.sum(p * p, -1)[None, :] - 2.0 * z @ p.T",
            ),
        ),
    ),
    Planted(
        "np.sqrt gives a float64 scalar that promotes the whole network in 64-bit mode",
        ("float64-promotion",),
        '''\
"""Event sequence encoder. Time stamps are int64 nanoseconds, hence 64-bit mode; the network is float32."""
import jax

jax.config.update("jax_enable_x64", True)

import math

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

F32 = jnp.float32
DIM, HEADS, LENGTH, BATCH = 96, 4, 48, 32


def gaps(stamps):
    """Log seconds between events, as float32 features."""
    d = jnp.diff(stamps, axis=-1, prepend=stamps[:, :1])
    return jnp.log1p(d.astype(F32) * 1e-9)


class Attention(nn.Module):
    heads: int

    @nn.compact
    def __call__(self, x):
        b, t, d = x.shape
        size = d // self.heads
        q, k, v = jnp.split(nn.Dense(3 * d, param_dtype=F32)(x), 3, axis=-1)
        q, k, v = (a.reshape(b, t, self.heads, size) for a in (q, k, v))
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(size)  # here
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return nn.Dense(d, param_dtype=F32)(out.reshape(b, t, d))


class EventNet(nn.Module):
    @nn.compact
    def __call__(self, kinds, stamps):
        x = nn.Embed(32, DIM, param_dtype=F32)(kinds) + nn.Dense(DIM, param_dtype=F32)(gaps(stamps)[..., None])
        for _ in range(2):
            x = x + Attention(HEADS)(nn.LayerNorm()(x))
            x = x + nn.Dense(DIM)(nn.gelu(nn.Dense(4 * DIM)(nn.LayerNorm()(x))))
        return nn.Dense(1)(x.mean(axis=1))[:, 0]


net = EventNet()
tx = optax.adam(1e-3)


def events(key, n):
    k1, k2 = jax.random.split(key)
    kinds = jax.random.randint(k1, (n, LENGTH), 0, 32)
    step = jax.random.randint(k2, (n, LENGTH), 10**6, 10**10)
    stamps = 1_700_000_000 * 10**9 + jnp.cumsum(step, axis=-1)
    label = (jnp.sum(kinds, axis=-1) > 31 * LENGTH // 2).astype(F32)
    return kinds, stamps, label


@jax.jit
def step(params, opt_state, data, key):
    idx = jax.random.randint(key, (BATCH,), 0, data[0].shape[0])
    kinds, stamps, label = (a[idx] for a in data)

    def loss_fn(p):
        return optax.sigmoid_binary_cross_entropy(net.apply(p, kinds, stamps), label).mean()

    loss, g = jax.value_and_grad(loss_fn)(params)
    u, opt_state = tx.update(g, opt_state)
    return optax.apply_updates(params, u), opt_state, loss


def main():
    k_data, k_init, key = jax.random.split(jax.random.key(0), 3)
    data = events(k_data, 1024)
    params = jax.jit(net.init)(k_init, data[0][:1], data[1][:1])
    opt_state = tx.init(params)
    size = sum(math.prod(a.shape) for a in jax.tree.leaves(params))
    print(f"{size} parameters")
    for i in range(1, 51):
        key, sub = jax.random.split(key)
        params, opt_state, loss = step(params, opt_state, data, sub)
        if i % 25 == 0:
            print(f"step {i} loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
''',
        (("/ np.sqrt(size)  # here", "/ math.sqrt(size)"),),
    ),
    Planted(
        "the checkpoint stays in NumPy and its tables are copied to the device at each request",
        ("numpy-inputs",),
        '''\
"""Inference service: read a checkpoint and score batches of requests."""
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np

USERS, ITEMS, DIM, BATCH = 60_000, 40_000, 96, 64


def write_checkpoint(path):
    rng = np.random.default_rng(0)
    np.savez(
        path,
        users=rng.standard_normal((USERS, DIM), dtype=np.float32),
        items=rng.standard_normal((ITEMS, DIM), dtype=np.float32),
        w1=rng.standard_normal((2 * DIM, 64), dtype=np.float32) * 0.1,
        w2=rng.standard_normal((64, 1), dtype=np.float32) * 0.1,
    )


def read_checkpoint(path):
    with np.load(path) as ckpt:
        return {name: ckpt[name] for name in ckpt.files}  # here


@jax.jit
def score(params, users, items):
    u = jnp.take(params["users"], users, axis=0)
    v = jnp.take(params["items"], items, axis=0)
    h = jax.nn.relu(jnp.concatenate([u, v], axis=-1) @ params["w1"])
    return (h @ params["w2"])[:, 0] + jnp.sum(u * v, axis=-1) / DIM


class Service:
    def __init__(self, path):
        self.params = read_checkpoint(path)

    def handle(self, users, items):
        return score(self.params, users, items)


def requests(key, n):
    k1, k2 = jax.random.split(key)
    users = jax.random.randint(k1, (n, BATCH), 0, USERS)
    items = jax.random.randint(k2, (n, BATCH), 0, ITEMS)
    return list(zip(users, items))


def main():
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "model.npz"
        write_checkpoint(path)
        service = Service(path)
    answers = [service.handle(u, i) for u, i in requests(jax.random.key(3), 1500)]
    answers = jnp.stack(answers)
    print(f"{answers.size} scores, mean {float(answers.mean()):.4f} std {float(answers.std()):.4f}")


if __name__ == "__main__":
    main()
''',
        (("ckpt[name] for name in ckpt.files}  # here", "jnp.asarray(ckpt[name]) for name in ckpt.files}"),),
    ),
    Planted(
        "the full Hessian is built for a Hessian-vector product in the power iteration",
        ("hessian-vector",),
        '''\
"""Training with the sharpness (largest Hessian eigenvalue) watched beside it."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree


class Net(eqx.Module):
    mlp: eqx.nn.MLP

    def __init__(self, key):
        self.mlp = eqx.nn.MLP(8, 1, 40, 2, activation=jnp.tanh, key=key)

    def __call__(self, x):
        return self.mlp(x)[0]


def dataset(key, n=256):
    k1, k2 = jax.random.split(key)
    x = jax.random.normal(k1, (n, 8))
    return x, jnp.sin(x @ jax.random.normal(k2, (8,)))


k_model, k_data, k_power, key = jax.random.split(jax.random.key(17), 4)
X, Y = dataset(k_data)
PARAMS, STATIC = eqx.partition(Net(k_model), eqx.is_inexact_array)
FLAT, UNRAVEL = ravel_pytree(PARAMS)
TX = optax.sgd(0.05, momentum=0.9)


def mse(flat, x, y):
    net = eqx.combine(UNRAVEL(flat), STATIC)
    return jnp.mean((jax.vmap(net)(x) - y) ** 2)


@jax.jit
def train(flat, opt_state, x, y):
    def body(carry, _):
        flat, s = carry
        loss, g = jax.value_and_grad(mse)(flat, x, y)
        u, s = TX.update(g, s)
        return (optax.apply_updates(flat, u), s), loss

    (flat, opt_state), losses = jax.lax.scan(body, (flat, opt_state), length=100)
    return flat, opt_state, losses[-1]


def curvature_along(flat, v, x, y):
    return jax.hessian(mse)(flat, x, y) @ v  # here


@jax.jit
def sharpness(flat, x, y, v):
    def body(_, v):
        hv = curvature_along(flat, v, x, y)
        return hv / jnp.linalg.norm(hv)

    v = jax.lax.fori_loop(0, 8, body, v / jnp.linalg.norm(v))
    return v @ curvature_along(flat, v, x, y), v


def main():
    flat, opt_state = FLAT, TX.init(FLAT)
    v = jax.random.normal(k_power, flat.shape)
    for epoch in range(5):
        flat, opt_state, loss = train(flat, opt_state, X, Y)
        top, v = sharpness(flat, X, Y, v)
        print(f"epoch {epoch} loss {float(loss):.5f} sharpness {float(top):.3f} (stable below {2 / 0.05:.0f})")


if __name__ == "__main__":
    main()
''',
        (
            (
                "return jax.hessian(mse)(flat, x, y) @ v  # here",
                "return jax.jvp(lambda f: jax.grad(mse)(f, x, y), (flat,), (v,))[1]",
            ),
        ),
    ),
    Planted(
        "a second forward pass in each step only for the accuracy",
        (),
        '''\
"""Image-like classification with flax.nnx; loss and accuracy are kept as running metrics."""
import dataclasses

import jax
import jax.numpy as jnp
import optax
from flax import nnx


@dataclasses.dataclass
class Hyper:
    width: int = 512
    steps: int = 900
    lr: float = 0.05


class Classifier(nnx.Module):
    def __init__(self, d, width, classes, rngs):
        self.l1 = nnx.Linear(d, width, rngs=rngs)
        self.l2 = nnx.Linear(width, width, rngs=rngs)
        self.l3 = nnx.Linear(width, classes, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.l1(x))
        x = nnx.relu(self.l2(x))
        return self.l3(x)


def patterns(key, n, d=256, classes=10):
    k1, k2, k3 = jax.random.split(key, 3)
    y = jax.random.randint(k1, (n,), 0, classes)
    proto = jax.random.normal(k2, (classes, d))
    return 0.3 * proto[y] + jax.random.normal(k3, (n, d)), y


def cross_entropy(model, x, y):
    logits = model(x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def hits(logits, y):
    return jnp.mean(jnp.argmax(logits, axis=-1) == y)


@nnx.jit
def train_step(model, optimizer, x, y, key):
    idx = jax.random.randint(key, (256,), 0, x.shape[0])
    xb, yb = x[idx], y[idx]
    loss, grads = nnx.value_and_grad(cross_entropy)(model, xb, yb)
    optimizer.update(model, grads)
    acc = hits(model(xb), yb)  # here
    return loss, acc


def main():
    hp = Hyper()
    k_data, key = jax.random.split(jax.random.key(12))
    x, y = patterns(k_data, 8192)
    model = Classifier(256, hp.width, 10, nnx.Rngs(1))
    optimizer = nnx.Optimizer(model, optax.sgd(hp.lr), wrt=nnx.Param)
    history = []
    for i in range(1, hp.steps + 1):
        key, sub = jax.random.split(key)
        history.append(train_step(model, optimizer, x, y, sub))
        if i % 300 == 0:
            loss, acc = (float(jnp.stack(m).mean()) for m in zip(*history))
            history.clear()
            print(f"step {i} loss {loss:.4f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()\n",
                "    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), hits(logits, y)\n",
            ),
            (
                "loss, grads = nnx.value_and_grad(cross_entropy)",
                "(loss, acc), grads = nnx.value_and_grad(cross_entropy, has_aux=True)",
            ),
            ("    acc = hits(model(xb), yb)  # here\n", ""),
        ),
    ),
    Planted(
        "SVGD's pairwise distances go through an N x N x D difference",
        ("broadcast-matmul",),
        '''\
"""Stein variational gradient descent for a Bayesian logistic regression."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Config(NamedTuple):
    particles: int = 1536
    features: int = 64
    rows: int = 256
    steps: int = 40
    lr: float = 0.05


class State(NamedTuple):
    particles: jax.Array
    accum: jax.Array
    step: jax.Array


def make_data(cfg, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(cfg.rows, cfg.features)).astype(np.float32)
    w = rng.normal(size=cfg.features).astype(np.float32)
    y = (x @ w > 0).astype(np.float32)
    return jax.device_put(x), jax.device_put(y)


def log_posterior(w, x, y):
    logits = x @ w
    loglik = jnp.sum(y * jax.nn.log_sigmoid(logits) + (1 - y) * jax.nn.log_sigmoid(-logits))
    return loglik - 0.5 * jnp.sum(w * w)


def squared_distances(a, b):
    return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)  # here


def kernel_and_repulsion(p):
    d2 = squared_distances(p, p)
    bandwidth = jnp.mean(d2) / jnp.log(p.shape[0] + 1.0)
    k = jnp.exp(-d2 / bandwidth)
    repulsion = 2.0 / bandwidth * (p * jnp.sum(k, axis=1, keepdims=True) - k @ p)
    return k, repulsion


@jax.jit
def svgd_step(state, x, y, lr):
    grads = jax.vmap(jax.grad(log_posterior), in_axes=(0, None, None))(state.particles, x, y)
    k, repulsion = kernel_and_repulsion(state.particles)
    phi = (k @ grads + repulsion) / state.particles.shape[0]
    accum = 0.9 * state.accum + 0.1 * phi * phi
    particles = state.particles + lr * phi / (jnp.sqrt(accum) + 1e-6)
    return State(particles, accum, state.step + 1)


@jax.jit
def accuracy(particles, x, y):
    probs = jnp.mean(jax.nn.sigmoid(x @ particles.T), axis=1)
    return jnp.mean((probs > 0.5) == (y > 0.5))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=Config().steps)
    cfg = Config(steps=parser.parse_args().steps)
    x, y = make_data(cfg)
    init = 0.1 * jax.random.normal(jax.random.key(1), (cfg.particles, cfg.features))
    state = State(init, jnp.zeros_like(init), jnp.zeros((), jnp.int32))
    for i in range(cfg.steps):
        state = svgd_step(state, x, y, cfg.lr)
        if (i + 1) % 20 == 0:
            print(f"step {i + 1}: accuracy {float(accuracy(state.particles, x, y)):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    return jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=-1)  # here",
                "    return jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1)[None] - 2.0 * a @ b.T",
            ),
        ),
    ),
    Planted(
        "Metropolis draws the proposal and the acceptance from one key",
        ("key-reuse",),
        '''\
"""Random-walk Metropolis on a one-dimensional Gaussian mixture, many chains at once."""
import dataclasses

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.stats import norm


@dataclasses.dataclass(frozen=True)
class SamplerConfig:
    chains: int = 4096
    rounds: int = 30
    steps_per_round: int = 200
    warmup_rounds: int = 10
    scale: float = 1.5


def log_density(x):
    left = jnp.log(0.5) + norm.logpdf(x, -1.0, 0.8)
    right = jnp.log(0.5) + norm.logpdf(x, 1.0, 0.8)
    return jnp.logaddexp(left, right)


class Metropolis:
    def __init__(self, log_density, scale):
        self.log_density = log_density
        self.scale = scale

    def init(self, x):
        return x, self.log_density(x)

    def transition(self, carry, _):
        key, x, logp = carry
        key, sub = jax.random.split(key)
        proposal = x + self.scale * jax.random.normal(sub, x.shape)
        logp_new = self.log_density(proposal)
        log_u = jnp.log(jax.random.uniform(sub, x.shape, minval=1e-7))  # here
        accept = log_u < logp_new - logp
        x = jnp.where(accept, proposal, x)
        logp = jnp.where(accept, logp_new, logp)
        return (key, x, logp), (jnp.mean(x), jnp.mean(x * x), jnp.mean(accept))


def build_round(sampler, steps):
    @jax.jit
    def run_round(key, x, logp):
        (_, x, logp), stats = lax.scan(sampler.transition, (key, x, logp), None, length=steps)
        return x, logp, jax.tree.map(jnp.mean, stats)

    return run_round


def main():
    cfg = SamplerConfig()
    sampler = Metropolis(log_density, cfg.scale)
    run_round = build_round(sampler, cfg.steps_per_round)
    key, key_init = jax.random.split(jax.random.key(0))
    x, logp = sampler.init(jax.random.normal(key_init, (cfg.chains,)))
    kept = []
    for i, round_key in enumerate(jax.random.split(key, cfg.rounds)):
        x, logp, stats = run_round(round_key, x, logp)
        if i >= cfg.warmup_rounds:
            kept.append(stats)
    mean, second, rate = (jnp.mean(jnp.stack(s)) for s in zip(*kept))
    print(f"mean {float(mean):+.3f} (exact 0)  variance {float(second - mean**2):.3f} (exact 1.64)")
    print(f"acceptance {float(rate):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            ("        key, sub = jax.random.split(key)\n", "        key, sub, sub_acc = jax.random.split(key, 3)\n"),
            ("jax.random.uniform(sub, ", "jax.random.uniform(sub_acc, "),
        ),
        is_about_results=True,
    ),
    Planted(
        "the masked self-distance makes the forces NaN",
        ("where-gradient",),
        '''\
"""Relaxation of a cluster of Morse particles by damped molecular dynamics."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Morse(NamedTuple):
    depth: float = 1.0
    alpha: float = 3.0
    r0: float = 1.1
    cutoff: float = 4.0


class MDState(NamedTuple):
    pos: jax.Array
    vel: jax.Array


def lattice(n_side, spacing, seed):
    grid = np.stack(np.meshgrid(*[np.arange(n_side)] * 3, indexing="ij"), -1).reshape(-1, 3)
    noise = np.random.default_rng(seed).normal(scale=0.05, size=grid.shape)
    return jnp.asarray(grid * spacing + noise, jnp.float32)


def energy(pos, pot):
    n = pos.shape[0]
    pairs = ~jnp.eye(n, dtype=bool)
    diff = pos[:, None, :] - pos[None, :, :]
    r = jnp.sqrt(jnp.sum(diff * diff, axis=-1))  # here
    well = pot.depth * ((1.0 - jnp.exp(-pot.alpha * (r - pot.r0))) ** 2 - 1.0)
    active = pairs & (r < pot.cutoff)
    return 0.5 * jnp.sum(jnp.where(active, well, 0.0))


forces = jax.grad(lambda pos, pot: -energy(pos, pot))


def velocity_verlet(state, pot, dt, friction):
    half = state.vel + 0.5 * dt * forces(state.pos, pot)
    pos = state.pos + dt * half
    vel = (half + 0.5 * dt * forces(pos, pot)) * (1.0 - friction * dt)
    return MDState(pos, vel)


@jax.jit
def run_block(state, pot, dt, friction):
    def body(s, _):
        return velocity_verlet(s, pot, dt, friction), None

    state, _ = lax.scan(body, state, None, length=100)
    return state, energy(state.pos, pot), jnp.sum(state.vel**2)


def main():
    pot = Morse()
    pos = lattice(6, 1.2, seed=3)
    state = MDState(pos, jnp.zeros_like(pos))
    history = []
    for _ in range(30):
        state, e, kinetic = run_block(state, pot, 0.01, 0.5)
        history.append((e, kinetic))
    for i, (e, kinetic) in enumerate(jax.device_get(history)):
        print(f"block {i}: energy {e:.3f} kinetic {kinetic:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    r = jnp.sqrt(jnp.sum(diff * diff, axis=-1))  # here",
                "    r = jnp.sqrt(jnp.where(pairs, jnp.sum(diff * diff, axis=-1), 1.0))",
            ),
        ),
        is_about_results=True,
    ),
    Planted(
        "the curvature along the gradient builds the whole Hessian",
        ("hessian-vector",),
        '''\
"""Steepest descent with an exact quadratic step length for a softplus Poisson regression."""
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class PoissonRegression:
    ridge: float = 1e-4
    max_step: float = 5000.0

    def objective(self, w, x, y):
        rate = jax.nn.softplus(x @ w) + 1e-4
        return jnp.mean(rate - y * jnp.log(rate)) + 0.5 * self.ridge * jnp.sum(w * w)

    def step_length(self, w, g, x, y):
        hg = jax.hessian(self.objective)(w, x, y) @ g  # here
        curvature = jnp.vdot(g, hg)
        return jnp.where(curvature > 0, jnp.vdot(g, g) / curvature, self.max_step)

    @functools.partial(jax.jit, static_argnums=0)
    def update(self, w, x, y):
        value, g = jax.value_and_grad(self.objective)(w, x, y)
        length = jnp.minimum(self.step_length(w, g, x, y), self.max_step)
        return w - length * g, value, length


def synthetic(rows, cols, seed):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(rows, cols)) / np.sqrt(cols)).astype(np.float32)
    w = rng.normal(size=cols).astype(np.float32)
    y = rng.poisson(np.log1p(np.exp(x @ w))).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(y), w


def fit(model, x, y, iterations):
    w = jnp.zeros(x.shape[1], jnp.float32)
    log = []
    for i in range(iterations):
        w, value, length = model.update(w, x, y)
        if i % 60 == 0:
            log.append((i, value, length))
    return w, jax.device_get(log)


def main():
    x, y, w_true = synthetic(rows=2000, cols=400, seed=0)
    model = PoissonRegression()
    w, log = fit(model, x, y, iterations=300)
    for i, value, length in log:
        print(f"iteration {i:3d} objective {value:.5f} step {length:.3f}")
    corr = np.corrcoef(np.asarray(w), w_true)[0, 1]
    print(f"correlation with the truth {corr:.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        hg = jax.hessian(self.objective)(w, x, y) @ g  # here",
                "        hg = jax.jvp(lambda u: jax.grad(self.objective)(u, x, y), (w,), (g,))[1]",
            ),
        ),
    ),
    Planted(
        "the low-rank metric is multiplied out before it meets the vector",
        ("matmul-order",),
        '''\
"""Langevin sampling of a field with a low-rank plus diagonal preconditioner."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Chain(NamedTuple):
    field: jax.Array
    momentum_scale: jax.Array
    key: jax.Array


class Preconditioner:
    """M = diag(d) + U diag(s) U^T, with s adapted by the chain's state."""

    def __init__(self, n, rank, key):
        basis = jax.random.normal(key, (n, rank))
        self.basis, _ = jnp.linalg.qr(basis)
        self.diagonal = jnp.full((n,), 0.2)

    def apply(self, basis, scales, g):
        low_rank = (basis * scales) @ basis.T @ g  # here
        return self.diagonal * g + low_rank


def potential(field, observed, noise):
    smooth = jnp.sum(jnp.diff(field) ** 2)
    misfit = jnp.sum((field - observed) ** 2) / noise
    return 0.5 * (smooth + misfit)


def make_sampler(pre, observed, noise, dt):
    grad_u = jax.grad(potential)

    def transition(basis, chain, _):
        key, sub = jax.random.split(chain.key)
        g = grad_u(chain.field, observed, noise)
        drift = pre.apply(basis, chain.momentum_scale, g)
        xi = jax.random.normal(sub, g.shape)
        field = chain.field - dt * drift + jnp.sqrt(2.0 * dt * pre.diagonal) * xi
        projected = basis.T @ field
        scale = 0.99 * chain.momentum_scale + 0.01 / (1.0 + projected**2)
        return Chain(field, scale, key), potential(field, observed, noise)

    @jax.jit
    def block(basis, chain):
        return lax.scan(lambda c, t: transition(basis, c, t), chain, None, length=20)

    return block


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=1400)
    parser.add_argument("--rank", type=int, default=160)
    parser.add_argument("--blocks", type=int, default=24)
    args = parser.parse_args()
    k_obs, k_pre, k_chain = jax.random.split(jax.random.key(7), 3)
    grid = jnp.linspace(0.0, 6.0, args.n)
    observed = jnp.sin(grid) + 0.1 * jax.random.normal(k_obs, (args.n,))
    pre = Preconditioner(args.n, args.rank, k_pre)
    block = make_sampler(pre, observed, noise=0.5, dt=0.02)
    chain = Chain(jnp.zeros(args.n), jnp.ones(args.rank), k_chain)
    for b in range(args.blocks):
        chain, energies = block(pre.basis, chain)
        if b % 8 == 7:
            print(f"block {b + 1}: mean potential {float(jnp.mean(energies)):.2f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        low_rank = (basis * scales) @ basis.T @ g  # here",
                "        low_rank = (basis * scales) @ (basis.T @ g)",
            ),
        ),
    ),
    Planted(
        "the blackjax kernel's step runs op by op, never jitted",
        ("eager-operations",),
        '''\
"""HMC with blackjax for a robust linear regression (Student-t errors)."""
import argparse
import dataclasses

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm, t


@dataclasses.dataclass
class RunConfig:
    draws: int = 24
    warmup: int = 8
    step_size: float = 0.02
    leapfrogs: int = 8
    seed: int = 0


def simulate(n=300, d=6, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    beta = np.linspace(-1.0, 1.0, d).astype(np.float32)
    y = (x @ beta + 0.3 * rng.standard_t(4, size=n)).astype(np.float32)
    return jnp.asarray(x), jnp.asarray(y), beta


class RobustRegression:
    def __init__(self, x, y, df=4.0):
        self.x, self.y, self.df = x, y, df

    def logdensity(self, params):
        scale = jnp.exp(params["log_scale"])
        resid = (self.y - self.x @ params["beta"]) / scale
        loglik = jnp.sum(t.logpdf(resid, self.df) - params["log_scale"])
        prior = jnp.sum(norm.logpdf(params["beta"])) + norm.logpdf(params["log_scale"])
        return loglik + prior

    def init(self):
        return {"beta": jnp.zeros(self.x.shape[1]), "log_scale": jnp.zeros(())}


def sample(model, cfg):
    position = model.init()
    dim = sum(v.size for v in position.values())
    kernel = blackjax.hmc(
        model.logdensity,
        step_size=cfg.step_size,
        inverse_mass_matrix=jnp.ones(dim),
        num_integration_steps=cfg.leapfrogs,
    )
    step = kernel.step  # here
    state = kernel.init(position)
    keys = jax.random.split(jax.random.key(cfg.seed), cfg.warmup + cfg.draws)
    draws, rates = [], []
    for i, key in enumerate(keys):
        state, info = step(key, state)
        if i >= cfg.warmup:
            draws.append(state.position)
            rates.append(info.acceptance_rate)
    return jax.tree.map(lambda *v: jnp.stack(v), *draws), jnp.stack(rates)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=RunConfig.draws)
    cfg = RunConfig(draws=parser.parse_args().draws)
    x, y, beta = simulate()
    draws, rates = sample(RobustRegression(x, y), cfg)
    print("posterior mean", np.round(np.asarray(draws["beta"].mean(0)), 2), "truth", np.round(beta, 2))
    print(f"scale {float(jnp.exp(draws['log_scale']).mean()):.3f}, acceptance {float(rates.mean()):.2f}")


if __name__ == "__main__":
    main()
''',
        (("    step = kernel.step  # here", "    step = jax.jit(kernel.step)"),),
    ),
    Planted(
        "the stations' table stays on device 0 while the step wants it spread over the devices",
        ("resharding",),
        '''\
import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P


class Table(NamedTuple):
    x: jax.Array
    y: jax.Array


class Moments(NamedTuple):
    weights: jax.Array
    momentum: jax.Array


def build_sharding():
    mesh = Mesh(np.array(jax.devices()), ("station",))
    return NamedSharding(mesh, P("station"))


def place(x, y, sharding):
    return Table(jnp.asarray(x), jax.device_put(y, sharding))  # here


def synthetic(stations, rows, cols, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((stations, rows, cols), dtype=np.float32)
    w = rng.standard_normal((stations, cols), dtype=np.float32)
    noise = 0.1 * rng.standard_normal((stations, rows), dtype=np.float32)
    return x, np.einsum("src,sc->sr", x, w) + noise, w


def huber(r, delta=1.0):
    a = jnp.abs(r)
    return jnp.where(a < delta, 0.5 * r * r, delta * (a - 0.5 * delta))


class StationTrainer:
    """One robust regression per station; stations are independent and spread over devices."""

    def __init__(self, by_station, lr=0.2, beta=0.8):
        self.by_station = by_station
        self.lr, self.beta = lr, beta
        self.step = jax.jit(
            jax.vmap(self._step),
            in_shardings=(by_station, by_station, by_station),
            out_shardings=(by_station, by_station),
        )

    def init(self, stations, cols):
        zeros = jnp.zeros((stations, cols), jnp.float32)
        return jax.device_put(Moments(zeros, zeros), self.by_station)

    def _loss(self, w, x, y):
        return jnp.mean(huber(x @ w - y))

    def _step(self, state, x, y):
        value, g = jax.value_and_grad(self._loss)(state.weights, x, y)
        momentum = self.beta * state.momentum + g
        return Moments(state.weights - self.lr * momentum, momentum), value


def main():
    by_station = build_sharding()
    x, y, w = synthetic(stations=8, rows=4096, cols=256, seed=0)
    table = place(x, y, by_station)
    trainer = StationTrainer(by_station)
    state = trainer.init(*w.shape)
    for i in range(280):
        state, values = trainer.step(state, table.x, table.y)
        if i % 70 == 69:
            print(f"step {i + 1}: mean loss {np.asarray(values).mean():.5f}")
    err = np.abs(np.asarray(state.weights) - w).max()
    print(f"largest error of a weight {err:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    return Table(jnp.asarray(x), jax.device_put(y, sharding))  # here",
                "    return Table(jax.device_put(x, sharding), jax.device_put(y, sharding))",
            ),
        ),
        devices=4,
    ),
    Planted(
        "each point of the sweep makes a new jitted diffrax solve",
        ("jit-in-loop",),
        '''\
"""Sweep of a driven double-well oscillator over its damping, with diffrax."""
from dataclasses import dataclass

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np


class DoubleWell(eqx.Module):
    drive: float = 0.35
    omega: float = 1.2

    def __call__(self, t, y, damping):
        x, v = y
        return v, x - x**3 - damping * v + self.drive * jnp.cos(self.omega * t)


@dataclass
class SweepConfig:
    dampings: tuple = tuple(np.linspace(0.1, 0.5, 10).tolist())
    t1: float = 60.0
    samples: int = 400
    rtol: float = 1e-5
    atol: float = 1e-6


class Sweep:
    def __init__(self, cfg: SweepConfig, field: DoubleWell):
        self.cfg = cfg
        self.term = diffrax.ODETerm(field)
        self.controller = diffrax.PIDController(rtol=cfg.rtol, atol=cfg.atol)
        self.ts = jnp.linspace(cfg.t1 / 2, cfg.t1, cfg.samples)

    def trajectory(self, y0, damping):
        solution = diffrax.diffeqsolve(
            self.term,
            diffrax.Tsit5(),
            t0=0.0,
            t1=self.cfg.t1,
            dt0=0.01,
            y0=y0,
            args=damping,
            saveat=diffrax.SaveAt(ts=self.ts),
            stepsize_controller=self.controller,
            max_steps=8192,
        )
        return solution.ys

    @staticmethod
    def summary(ys):
        x, v = ys
        return jnp.mean(0.5 * v**2 - 0.5 * x**2 + 0.25 * x**4)

    def run(self, y0):
        energies = []
        for damping in self.cfg.dampings:
            args = jnp.asarray(damping, jnp.float32)
            energies.append(self.point(y0, args))
        return jnp.stack(energies)

    def point(self, y0, args):
        solve = eqx.filter_jit(lambda y0: self.trajectory(y0, args))  # here
        return self.summary(solve(y0))


def main():
    cfg = SweepConfig()
    sweep = Sweep(cfg, DoubleWell())
    y0 = (jnp.asarray(0.5), jnp.asarray(0.0))
    energies = np.asarray(sweep.run(y0))
    for damping, e in zip(cfg.dampings, energies):
        print(f"damping {damping:.3f}: mean energy {e:+.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        solve = eqx.filter_jit(lambda y0: self.trajectory(y0, args))  # here\n        return self.summary(solve(y0))",
                "        return self.summary(_solve(self.trajectory, y0, args))",
            ),
            ("class Sweep:", "@eqx.filter_jit\ndef _solve(f, y0, args):\n    return f(y0, args)\n\n\nclass Sweep:"),
        ),
    ),
    Planted(
        "the model has a sample site per school in a Python loop, not a plate",
        ("unrolled-loop", "python-loop-vmap"),
        '''\
"""Hierarchical regression over schools, sampled by NUTS in numpyro."""
import argparse

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS


def simulate(groups, per_group, seed=0):
    rng = np.random.default_rng(seed)
    truth = rng.normal(loc=1.0, scale=0.7, size=groups)
    group = np.repeat(np.arange(groups), per_group)
    x = rng.normal(size=group.size)
    y = truth[group] + 0.5 * x + rng.normal(scale=0.6, size=group.size)
    data = {"group": group.astype(np.int32), "x": x.astype(np.float32), "y": y.astype(np.float32)}
    return jax.device_put(data), truth


def model(groups, group, x, y=None):
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.HalfNormal(1.0))
    effects = []
    for g in range(groups):  # here
        raw = numpyro.sample(f"raw_{g}", dist.Normal(0.0, 1.0))
        effects.append(mu + tau * raw)
    effects = numpyro.deterministic("effects", jnp.stack(effects))
    mean = effects[group] + slope * x
    with numpyro.plate("pupils", group.shape[0]):
        numpyro.sample("obs", dist.Normal(mean, sigma), obs=y)


class Experiment:
    def __init__(self, groups, warmup, draws):
        self.groups = groups
        self.mcmc = MCMC(NUTS(model), num_warmup=warmup, num_samples=draws, progress_bar=False)

    def run(self, key, data):
        self.mcmc.run(key, self.groups, **data)
        return self.mcmc.get_samples()


def report(samples, truth):
    for name in ("mu", "tau", "slope", "sigma"):
        draws = np.asarray(samples[name])
        print(f"{name:6s} {draws.mean():+.3f} +- {draws.std():.3f}")
    effects = np.asarray(samples["effects"]).mean(axis=0)
    print(f"error of the effects {np.abs(effects - truth).mean():.3f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--groups", type=int, default=40)
    parser.add_argument("--draws", type=int, default=200)
    args = parser.parse_args()
    data, truth = simulate(args.groups, per_group=8)
    experiment = Experiment(args.groups, warmup=150, draws=args.draws)
    samples = experiment.run(jax.random.key(0), data)
    report(samples, truth)


if __name__ == "__main__":
    main()
''',
        (
            (
                '    effects = []\n    for g in range(groups):  # here\n        raw = numpyro.sample(f"raw_{g}", dist.Normal(0.0, 1.0))\n        effects.append(mu + tau * raw)\n    effects = numpyro.deterministic("effects", jnp.stack(effects))\n',
                '    with numpyro.plate("groups", groups):\n        raw = numpyro.sample("raw", dist.Normal(0.0, 1.0))\n    effects = numpyro.deterministic("effects", mu + tau * raw)\n',
            ),
        ),
    ),
    Planted(
        "light curves are fitted one by one in a comprehension",
        ("small-calls",),
        '''\
"""Levenberg-Marquardt fits of a decaying oscillation to many light curves."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Curve(NamedTuple):
    amplitude: jax.Array
    decay: jax.Array
    frequency: jax.Array


class LMState(NamedTuple):
    params: jax.Array
    lam: jax.Array
    cost: jax.Array


def predict(p, ts):
    c = Curve(*p)
    return c.amplitude * jnp.exp(-c.decay * ts) * jnp.cos(c.frequency * ts)


def residuals(p, ts, y):
    return predict(p, ts) - y


def lm_iteration(state, ts, y):
    r = residuals(state.params, ts, y)
    jac = jax.jacfwd(residuals)(state.params, ts, y)
    normal = jac.T @ jac
    damped = normal + state.lam * jnp.diag(jnp.diag(normal) + 1e-6)
    delta = jnp.linalg.solve(damped, jac.T @ r)
    candidate = state.params - delta
    cost = jnp.sum(residuals(candidate, ts, y) ** 2)
    better = cost < state.cost
    return LMState(
        jnp.where(better, candidate, state.params),
        jnp.where(better, state.lam / 3.0, state.lam * 4.0),
        jnp.where(better, cost, state.cost),
    )


@jax.jit
def fit_curve(ts, y, guess):
    start = LMState(guess, jnp.asarray(1e-2, jnp.float32), jnp.sum(residuals(guess, ts, y) ** 2))
    final = lax.fori_loop(0, 40, lambda _, s: lm_iteration(s, ts, y), start)
    return final.params, final.cost


def fit_all(ts, curves, guess):
    fits = [fit_curve(ts, y, guess) for y in curves]  # here
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *fits)


def synthetic(n, samples, seed):
    rng = np.random.default_rng(seed)
    ts = np.linspace(0.0, 5.0, samples)
    truth = np.stack(
        [rng.uniform(0.8, 1.2, n), rng.uniform(0.2, 0.5, n), rng.uniform(2.8, 3.2, n)], axis=1
    )
    clean = truth[:, :1] * np.exp(-truth[:, 1:2] * ts) * np.cos(truth[:, 2:] * ts)
    noisy = clean + 0.02 * rng.normal(size=clean.shape)
    return jnp.asarray(ts, jnp.float32), jnp.asarray(noisy, jnp.float32), truth


def main():
    ts, curves, truth = synthetic(n=3000, samples=64, seed=0)
    guess = jnp.asarray([1.0, 0.3, 3.0], jnp.float32)
    params, cost = fit_all(ts, curves, guess)
    error = np.abs(np.asarray(params) - truth).mean(axis=0)
    print("mean error of amplitude, decay, frequency:", np.round(error, 4))
    print(f"median cost {float(jnp.median(cost)):.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "    fits = [fit_curve(ts, y, guess) for y in curves]  # here\n    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *fits)",
                "    return jax.jit(jax.vmap(fit_curve, in_axes=(None, 0, None)))(ts, curves, guess)",
            ),
        ),
    ),
    Planted(
        "the GP's data set gets one row longer at each acquisition",
        ("growing-shapes",),
        '''\
"""Bayesian optimisation of a noisy Branin function with a Gaussian process."""
import argparse

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve_triangular
from jax.scipy.stats import norm

NOISE = 1e-3
LOW = jnp.array([-5.0, 0.0])
HIGH = jnp.array([10.0, 15.0])


@jax.jit
def branin(x, key):
    a, b = x
    value = (b - 5.1 / (4 * jnp.pi**2) * a**2 + 5 / jnp.pi * a - 6) ** 2
    value = value + 10 * (1 - 1 / (8 * jnp.pi)) * jnp.cos(a) + 10
    return value / 50.0 + 0.01 * jax.random.normal(key)


class DataSet:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def add(self, x_new, y_new):
        self.x = jnp.concatenate([self.x, x_new[None]])  # here
        self.y = jnp.concatenate([self.y, y_new[None]])  # here


def rbf(a, b, length=3.0):
    d2 = jnp.sum(a * a, 1)[:, None] + jnp.sum(b * b, 1)[None] - 2.0 * a @ b.T
    return jnp.exp(-0.5 * jnp.maximum(d2, 0.0) / length**2)


def posterior(x, y, xs):
    gram = rbf(x, x) + NOISE * jnp.eye(x.shape[0])
    chol = cho_factor(gram, lower=True)
    cross = rbf(x, xs)
    mean = cross.T @ cho_solve(chol, y)
    half = solve_triangular(chol[0], cross, lower=True)
    var = jnp.maximum(1.0 - jnp.sum(half * half, axis=0), 1e-9)
    return mean, jnp.sqrt(var)


@jax.jit
def acquire(x, y, key):
    candidates = jax.random.uniform(key, (2048, 2), minval=LOW, maxval=HIGH)
    mean, std = posterior(x, y, candidates)
    gain = jnp.min(y) - mean
    z = gain / std
    improvement = gain * norm.cdf(z) + std * norm.pdf(z)
    return candidates[jnp.argmax(improvement)]


def optimise(key, start, rounds):
    key, k_x, k_y = jax.random.split(key, 3)
    x = jax.random.uniform(k_x, (start, 2), minval=LOW, maxval=HIGH)
    y = jax.vmap(branin)(x, jax.random.split(k_y, start))
    data = DataSet(x, y)
    for _ in range(rounds):
        key, sub, k_eval = jax.random.split(key, 3)
        x_new = acquire(data.x, data.y, sub)
        data.add(x_new, branin(x_new, k_eval))
    best = jnp.argmin(data.y)
    return data.x[best], data.y[best]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    best_x, best_y = optimise(jax.random.key(0), start=6, rounds=args.rounds)
    print("best point", best_x, f"value {float(best_y):.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "        self.x = jnp.concatenate([self.x, x_new[None]])  # here\n        self.y = jnp.concatenate([self.y, y_new[None]])  # here\n",
                "        self.x = self.x.at[self.n].set(x_new)\n        self.y = self.y.at[self.n].set(y_new)\n        self.n += 1\n",
            ),
            (
                "        self.x, self.y = x, y\n",
                "        self.n = x.shape[0]\n        self.x = jnp.zeros((64, x.shape[1])).at[: self.n].set(x)\n        self.y = jnp.zeros(64).at[: self.n].set(y)\n",
            ),
            ("acquire(data.x, data.y, sub)", "acquire(data.x, data.y, data.n, sub)"),
            ("def acquire(x, y, key):", "def acquire(x, y, n, key):"),
            ("posterior(x, y, candidates)", "posterior(x, y, n, candidates)"),
            ("jnp.min(y) - mean", "jnp.min(jnp.where(jnp.arange(y.size) < n, y, jnp.inf)) - mean"),
            ("def posterior(x, y, xs):", "def posterior(x, y, n, xs):\n    m = jnp.arange(x.shape[0]) < n"),
            (
                "gram = rbf(x, x) + NOISE * jnp.eye(x.shape[0])",
                "gram = rbf(x, x) * m[:, None] * m[None] + jnp.diag(jnp.where(m, NOISE, 1.0))",
            ),
            ("cross = rbf(x, xs)", "cross = rbf(x, xs) * m[:, None]"),
            ("jnp.argmin(data.y)", "jnp.argmin(data.y[: data.n])"),
        ),
    ),
    Planted(
        "the likelihood calls SciPy's gammaln on the host in each transition",
        ("host-callback",),
        '''\
"""Ensemble slice of a negative-binomial dispersion model by random-walk Metropolis."""
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.special
from jax import lax


@dataclass(frozen=True)
class Settings:
    chains: int = 64
    transitions: int = 3600
    block: int = 300
    scale: float = 0.05
    counts: int = 500


class Chains(NamedTuple):
    theta: jax.Array
    logp: jax.Array
    accepted: jax.Array


def host_gammaln(x):
    return scipy.special.gammaln(np.asarray(x)).astype(np.float32)


def log_gamma(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.pure_callback(host_gammaln, shape, x, vmap_method="expand_dims")  # here


def log_posterior(theta, counts):
    log_mean, log_r = theta
    r, mean = jnp.exp(log_r), jnp.exp(log_mean)
    loglik = (
        log_gamma(counts + r)
        - log_gamma(jnp.broadcast_to(r, counts.shape))
        + r * jnp.log(r / (r + mean))
        + counts * jnp.log(mean / (r + mean))
    )
    return jnp.sum(loglik) - 0.5 * jnp.sum(theta**2) / 9.0


def transition(chains, key, counts, scale):
    k_prop, k_acc = jax.random.split(key)
    proposal = chains.theta + scale * jax.random.normal(k_prop, chains.theta.shape)
    logp = jax.vmap(log_posterior, in_axes=(0, None))(proposal, counts)
    accept = jnp.log(jax.random.uniform(k_acc, logp.shape)) < logp - chains.logp
    return Chains(
        jnp.where(accept[:, None], proposal, chains.theta),
        jnp.where(accept, logp, chains.logp),
        chains.accepted + accept,
    )


def make_block(settings):
    @jax.jit
    def block(chains, key, counts):
        def body(c, k):
            c = transition(c, k, counts, settings.scale)
            return c, jnp.mean(c.theta, axis=0)

        return lax.scan(body, chains, jax.random.split(key, settings.block))

    return block


def main():
    settings = Settings()
    rng = np.random.default_rng(0)
    counts = jnp.asarray(rng.negative_binomial(4, 4 / (4 + 7.0), settings.counts), jnp.float32)
    key, k_init = jax.random.split(jax.random.key(0))
    theta = jnp.array([2.0, 1.0]) + 0.1 * jax.random.normal(k_init, (settings.chains, 2))
    logp = jax.jit(jax.vmap(log_posterior, in_axes=(0, None)))(theta, counts)
    chains = Chains(theta, logp, jnp.zeros(settings.chains, jnp.int32))
    block = make_block(settings)
    means = []
    for block_key in jax.random.split(key, settings.transitions // settings.block):
        chains, trace = block(chains, block_key, counts)
        means.append(trace)
    log_mean, log_r = np.asarray(jnp.concatenate(means)[settings.block :].mean(axis=0))
    rate = float(chains.accepted.mean()) / settings.transitions
    print(f"mean {np.exp(log_mean):.2f}, dispersion {np.exp(log_r):.2f}, acceptance {rate:.2f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                '    return jax.pure_callback(host_gammaln, shape, x, vmap_method="expand_dims")  # here',
                "    return jax.scipy.special.gammaln(x)",
            ),
        ),
    ),
    Planted(
        "the temperature of the annealing is a static argument",
        ("static-churn",),
        '''\
"""Simulated annealing of an Ising spin glass with checkerboard updates."""
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax


class Glass(NamedTuple):
    right: jax.Array
    down: jax.Array


class Schedule:
    """Geometric cooling from `hot` to `cold`."""

    def __init__(self, hot, cold, levels):
        self.values = np.geomspace(hot, cold, levels).tolist()

    def __iter__(self):
        return iter(self.values)

    def __len__(self):
        return len(self.values)


def random_glass(key, n):
    k_r, k_d = jax.random.split(key)
    return Glass(jax.random.normal(k_r, (n, n)), jax.random.normal(k_d, (n, n)))


def local_field(spins, glass):
    return (
        glass.right * jnp.roll(spins, -1, 1)
        + jnp.roll(glass.right * spins, 1, 1)
        + glass.down * jnp.roll(spins, -1, 0)
        + jnp.roll(glass.down * spins, 1, 0)
    )


def half_sweep(spins, glass, key, colour, temperature):
    n = spins.shape[0]
    parity = (jnp.arange(n)[:, None] + jnp.arange(n)[None, :]) % 2
    delta = 2.0 * spins * local_field(spins, glass)
    flip = jax.random.uniform(key, spins.shape) < jnp.exp(-delta / temperature)
    return jnp.where(flip & (parity == colour), -spins, spins)


@functools.partial(jax.jit, static_argnames=("temperature", "sweeps"))  # here
def anneal_level(spins, glass, key, temperature, sweeps):
    def body(s, k):
        k_even, k_odd = jax.random.split(k)
        s = half_sweep(s, glass, k_even, 0, temperature)
        s = half_sweep(s, glass, k_odd, 1, temperature)
        return s, None

    spins, _ = lax.scan(body, spins, jax.random.split(key, sweeps))
    energy = -0.5 * jnp.mean(spins * local_field(spins, glass))
    return spins, energy


def main():
    schedule = Schedule(hot=3.0, cold=0.05, levels=14)
    k_glass, k_init, k_run = jax.random.split(jax.random.key(0), 3)
    glass = random_glass(k_glass, 64)
    spins = jax.random.rademacher(k_init, (64, 64), dtype=jnp.float32)
    energies = []
    for temperature, key in zip(schedule, jax.random.split(k_run, len(schedule))):
        spins, energy = anneal_level(spins, glass, key, temperature=temperature, sweeps=50)
        energies.append(energy)
    energies = np.asarray(jnp.stack(energies))
    for t, e in list(zip(schedule, energies))[::5]:
        print(f"T {t:.3f} energy per spin {e:.4f}")
    print(f"final energy per spin {energies[-1]:.4f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                '@functools.partial(jax.jit, static_argnames=("temperature", "sweeps"))  # here',
                '@functools.partial(jax.jit, static_argnames=("sweeps",))',
            ),
        ),
    ),
    Planted(
        "under vmap the rare refresh in lax.cond runs for every chain at every step",
        ("vmapped-cond",),
        '''\
"""Chains with a mass matrix that is refreshed from a running covariance every 50 steps."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class ChainState(NamedTuple):
    x: jax.Array
    mean: jax.Array
    cov: jax.Array
    root: jax.Array


def target(dim, key):
    a = jax.random.normal(key, (dim, dim)) / jnp.sqrt(dim)
    return a @ a.T + 0.5 * jnp.eye(dim)


class AdaptiveLangevin:
    def __init__(self, precision, chains, eps=0.5, refresh_every=200):
        self.precision = precision
        self.chains = chains
        self.eps = eps
        self.refresh_every = refresh_every

    def init(self, key):
        d = self.precision.shape[0]
        eye = jnp.broadcast_to(jnp.eye(d), (self.chains, d, d))
        x = jax.random.normal(key, (self.chains, d))
        return ChainState(x, jnp.zeros_like(x), eye, eye)

    def refresh(self, state):
        d = state.x.shape[0]
        jitter = 1e-3 * jnp.eye(d)
        values, vectors = jnp.linalg.eigh(0.5 * (state.cov + state.cov.T) + jitter)
        root = vectors * jnp.sqrt(jnp.maximum(values, 1e-4))
        return state._replace(root=root)

    def transition(self, state, i, key):
        state = lax.cond(i % self.refresh_every == 0, self.refresh, lambda s: s, state)
        grad = self.precision @ state.x
        drift = state.root @ (state.root.T @ grad)
        noise = state.root @ jax.random.normal(key, state.x.shape)
        x = state.x - 0.5 * self.eps**2 * drift + self.eps * noise
        delta = x - state.mean
        rate = 1.0 / (i + 20.0)
        mean = state.mean + rate * delta
        cov = (1.0 - rate) * state.cov + rate * jnp.outer(delta, delta)
        return ChainState(x, mean, cov, state.root)

    def run(self, chains, key, steps):
        def body(chains, inputs):
            i, k = inputs
            keys = jax.random.split(k, self.chains)
            chains = jax.vmap(self.transition, in_axes=(0, 0, 0))(chains, jnp.broadcast_to(i, (self.chains,)), keys)  # here
            return chains, jnp.mean(chains.x**2)

        return lax.scan(body, chains, (jnp.arange(steps), jax.random.split(key, steps)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--chains", type=int, default=64)
    args = parser.parse_args()
    k_target, k_init, k_run = jax.random.split(jax.random.key(0), 3)
    sampler = AdaptiveLangevin(target(24, k_target), args.chains)
    run = jax.jit(sampler.run, static_argnums=2)
    chains, trace = run(sampler.init(k_init), k_run, args.steps)
    exact = jnp.mean(jnp.diag(jnp.linalg.inv(sampler.precision)))
    print(f"mean square {float(trace[args.steps // 2:].mean()):.3f}, exact {float(exact):.3f}")


if __name__ == "__main__":
    main()
''',
        (
            (
                "jax.vmap(self.transition, in_axes=(0, 0, 0))(chains, jnp.broadcast_to(i, (self.chains,)), keys)  # here",
                "jax.vmap(self.transition, in_axes=(0, None, 0))(chains, i, keys)",
            ),
        ),
    ),
    Planted(
        "the Monte Carlo sum is carried in bfloat16 and stops growing",
        ("low-precision-accumulation",),
        '''\
"""Price of an Asian option by Monte Carlo, paths simulated in half precision."""
import argparse
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Market(NamedTuple):
    spot: float = 1.0
    strike: float = 1.0
    rate: float = 0.03
    vol: float = 0.25
    maturity: float = 1.0


class Totals(NamedTuple):
    payoff: jax.Array
    square: jax.Array
    paths: jax.Array


@dataclass(frozen=True)
class AsianPricer:
    market: Market
    dates: int = 16
    paths_per_round: int = 2048
    dtype: Any = jnp.bfloat16

    def init(self):
        zero = jnp.zeros((), self.dtype)  # here
        return Totals(zero, zero, jnp.zeros((), jnp.int32))

    def payoffs(self, key):
        m = self.market
        dt = m.maturity / self.dates
        z = jax.random.normal(key, (self.paths_per_round, self.dates), jnp.float32)
        log_returns = (m.rate - 0.5 * m.vol**2) * dt + m.vol * jnp.sqrt(dt) * z
        path = m.spot * jnp.exp(jnp.cumsum(log_returns, axis=1))
        payoff = jnp.maximum(path.mean(axis=1) - m.strike, 0.0)
        return jnp.exp(-m.rate * m.maturity) * payoff

    def round(self, totals, key):
        pay = self.payoffs(key)
        kind = totals.payoff.dtype
        return Totals(
            totals.payoff + jnp.mean(pay).astype(kind),
            totals.square + jnp.mean(pay**2).astype(kind),
            totals.paths + 1,
        ), None

    def block(self, totals, key, rounds):
        totals, _ = lax.scan(self.round, totals, jax.random.split(key, rounds))
        return totals


def summary(totals):
    n = totals.paths.astype(jnp.float32)
    mean = totals.payoff.astype(jnp.float32) / n
    var = totals.square.astype(jnp.float32) / n - mean**2
    return mean, jnp.sqrt(jnp.maximum(var, 0.0))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=500)
    args = parser.parse_args()
    pricer = AsianPricer(Market())
    block = jax.jit(pricer.block, static_argnums=2)
    totals = pricer.init()
    for key in jax.random.split(jax.random.key(0), args.blocks):
        totals = block(totals, key, args.rounds)
    mean, std = summary(totals)
    print(f"price {float(mean):.4f} (about 0.064), deviation {float(std):.4f}")


if __name__ == "__main__":
    main()
''',
        (("        zero = jnp.zeros((), self.dtype)  # here", "        zero = jnp.zeros((), jnp.float32)"),),
        is_about_results=True,
    ),
)
