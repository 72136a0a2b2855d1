"""Ten programs with one pitfall each, written when the rules were done, and audited before anything was changed."""

from __future__ import annotations

from planted.planted import Planted

UNSEEN = (
    Planted(
        "a lookup of user embeddings by einsum",
        ("one-hot-matmul",),
        """\
import jax, jax.numpy as jnp, optax

def scores(params, users, items):
    u = jnp.einsum("bn,nd->bd", jax.nn.one_hot(users, 5000), params["users"])  # here
    v = params["items"][items]
    return jnp.sum(u * v, axis=-1)

rule = optax.adagrad(1e-2)

@jax.jit
def step(params, state, users, items, ratings):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((scores(p, users, items) - ratings) ** 2))(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

key = jax.random.key(0)
a, b, c, d, e = jax.random.split(key, 5)
params = {"users": jax.random.normal(a, (5000, 32)), "items": jax.random.normal(b, (2000, 32))}
state = rule.init(params)
users, items = jax.random.randint(c, (512,), 0, 5000), jax.random.randint(d, (512,), 0, 2000)
ratings = jax.random.normal(e, (512,))
for i in range(60):
    params, state, loss = step(params, state, users, items, ratings)
print(loss)
""",
        (('jnp.einsum("bn,nd->bd", jax.nn.one_hot(users, 5000), params["users"])', 'params["users"][users]'),),
    ),
    Planted(
        "noise of a diffusion sampler that is the same in each step",
        ("key-reuse",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def sample(key, x):
    def denoise(i, x):
        noise = jax.random.normal(key, x.shape)  # here
        return 0.99 * x + 0.1 * jnp.tanh(x) + 0.05 * noise
    return jax.lax.fori_loop(0, 50, denoise, x)

key, first = jax.random.split(jax.random.key(0))
x = jax.random.normal(first, (64, 32))
for i in range(10):
    key, mine = jax.random.split(key)
    x = sample(mine, x)
print(x.std())
""",
        (("jax.random.normal(key, x.shape)", "jax.random.normal(jax.random.fold_in(key, i), x.shape)"),),
        is_about_results=True,
    ),
    Planted(
        "a division that where guards",
        ("where-gradient",),
        """\
import jax, jax.numpy as jnp
from flax import nnx

class Attention(nnx.Module):
    def __init__(self, rngs):
        self.score = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x):
        w = jax.nn.relu(self.score(x)[..., 0])
        total = w.sum(-1, keepdims=True)
        share = jnp.where(total > 0, w / total, 0.0)  # here
        return (x * share[..., None]).sum(1)

net = Attention(nnx.Rngs(0))

@nnx.jit
def gradient(net, x):
    return nnx.grad(lambda net: (net(x) ** 2).mean())(net)

x = jax.random.normal(jax.random.key(0), (32, 10, 16))
for i in range(20):
    g = gradient(net, x)
print(jax.tree.leaves(g)[0].sum())
""",
        (("w / total, 0.0)", "w / jnp.where(total > 0, total, 1.0), 0.0)"),),
        is_about_results=True,
    ),
    Planted(
        "an evaluation that reads each number of correct answers",
        ("implicit-transfers", "wait-per-step"),
        """\
import jax, jax.numpy as jnp, numpy as np
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(10)(nn.relu(nn.Dense(512)(x)))

net = Net()
params = net.init(jax.random.key(0), jnp.ones((1, 784)))

@jax.jit
def correct(params, x, y):
    return (net.apply(params, x).argmax(-1) == y).sum()

rng = np.random.default_rng(0)
total = 0
for i in range(150):
    x, y = rng.normal(size=(128, 784)).astype("f4"), rng.integers(0, 10, 128)
    total += int(correct(params, jax.device_put(x), jax.device_put(y)))  # here
print("accuracy", total / (150 * 128))
""",
        (
            (
                "total += int(correct(params, jax.device_put(x), jax.device_put(y)))",
                "total += correct(params, jax.device_put(x), jax.device_put(y))",
            ),
        ),
    ),
    Planted(
        "an optimizer state made of Python numbers",
        ("compiled-twice", "recompile-hot-spot"),
        """\
import jax, jax.numpy as jnp

@jax.jit
def step(state, x):
    w, velocity, count = state["w"], state["v"], state["n"]
    g = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    velocity = 0.9 * velocity + g
    count = count + jnp.float32(1)
    return {"w": w - 1e-2 * velocity / (1 - 0.9**count), "v": velocity, "n": count}

state = {"w": jnp.ones((64, 8)) * 0.1, "v": jnp.zeros((64, 8)), "n": 0}
x = jax.random.normal(jax.random.key(0), (128, 64))
for i in range(50):
    state = step(state, x)  # here
print(state["n"])
""",
        (('"n": 0}', '"n": jnp.float32(0)}'),),
    ),
    Planted(
        "a filter that is applied sample by sample",
        ("small-calls",),
        """\
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def classify(window):
    spectrum = jnp.abs(jnp.fft.rfft(window))
    return spectrum[:8].sum() > spectrum[8:].sum()

signal = np.random.default_rng(0).normal(size=20000).astype("f4")
windows = jax.device_put([signal[i : i + 64] for i in range(0, 19000, 10)])
found = []
for window in windows:
    found.append(classify(window))  # here
print(int(np.sum(jax.device_get(found))))
""",
        (
            ("@jax.jit\ndef", "@jax.jit\n@jax.vmap\ndef"),
            (
                "found = []\nfor window in windows:\n    found.append(classify(window))  # here\n",
                "found = classify(jnp.stack(windows))\n",
            ),
        ),
    ),
    Planted(
        "a replay buffer that grows outside of jit",
        ("growing-shapes",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def act(w, state):
    return jnp.tanh(state @ w)

w = jnp.eye(8)
state = jnp.ones(8)
buffer = jnp.zeros((0, 8))
for i in range(40):
    state = act(w, state)
    buffer = jnp.vstack([buffer, state[None]])  # here
print(buffer.mean())
""",
        (
            ("buffer = jnp.zeros((0, 8))", "buffer = []"),
            ("buffer = jnp.vstack([buffer, state[None]])  # here", "buffer.append(state)"),
            ("buffer.mean()", "jnp.stack(buffer).mean()"),
        ),
    ),
    Planted(
        "a correlation of all pairs by broadcasting",
        ("broadcast-matmul",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def similarity(a, b):
    a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
    b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
    return (a[:, None, :] * b[None, :, :]).mean(axis=-1)  # here

key = jax.random.key(0)
images, texts = jax.random.normal(key, (2, 1024, 256))
for i in range(15):
    s = similarity(images, texts)
    images = images + 1e-3 * s @ texts
print(s.sum())
""",
        (("(a[:, None, :] * b[None, :, :]).mean(axis=-1)", "a @ b.T / a.shape[-1]"),),
    ),
    Planted(
        "a benchmark that times the dispatch",
        ("unawaited-timing",),
        """\
from time import time
import jax, jax.numpy as jnp

def benchmark(f, x, n=20):
    f(x).block_until_ready()
    start = time()
    for _ in range(n):
        y = f(x)  # here
    elapsed = time() - start
    return elapsed / n

conv = jax.jit(lambda x: jax.lax.conv_general_dilated(x, jnp.ones((8, 8, 3, 3)), (1, 1), "SAME"))
print(benchmark(conv, jnp.ones((8, 8, 64, 64))))
""",
        (("    elapsed = time() - start", "    y.block_until_ready()\n    elapsed = time() - start"),),
        is_about_results=True,
    ),
    Planted(
        "a mask that is sent in each step with the batch",
        ("repeated-device-put",),
        """\
import equinox as eqx
import jax, jax.numpy as jnp, numpy as np

model = eqx.nn.MLP(64, 64, 128, 1, key=jax.random.key(0))
mask = np.tril(np.ones((512, 512), np.float32))

@eqx.filter_jit
def step(model, x, mask):
    def loss(model):
        return ((mask @ jax.vmap(model)(x)) ** 2).mean()
    grads = eqx.filter_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, grads))

rng = np.random.default_rng(0)
for i in range(60):
    batch = {"x": rng.normal(size=(512, 64)).astype("f4"), "mask": mask}
    batch = jax.device_put(batch)  # here
    model = step(model, batch["x"], batch["mask"])
print(model(jnp.ones(64)).sum())
""",
        (
            (
                '    batch = {"x": rng.normal(size=(512, 64)).astype("f4"), "mask": mask}\n'
                "    batch = jax.device_put(batch)  # here\n",
                '    x = jax.device_put(rng.normal(size=(512, 64)).astype("f4"))\n',
            ),
            ('batch["x"], batch["mask"]', "x, mask"),
            ("rng = np.random.default_rng(0)", "mask = jax.device_put(mask)\nrng = np.random.default_rng(0)"),
        ),
    ),
)
