"""Programs as people write them, each with one pitfall on the line that ends with `# here`, and its remedy.

`TUNED` were at hand while the rules were written, `HELD_OUT` (`held_out.py`) were set aside but known, and `UNSEEN`
(`unseen.py`) were written when the rules were done.
"""

from __future__ import annotations

from dataclasses import dataclass

MARKS = ("# here", "# or here")
"""The second: where the same remark helps as much, as where a value is made that this line passes."""


@dataclass(frozen=True)
class Planted:
    """One program."""

    name: str
    rules: tuple[str, ...]
    """Any of them is an answer that helps."""
    text: str
    remedy: tuple[tuple[str, str], ...]
    """Texts and what stands in their place when the advice is followed."""
    devices: int = 1
    is_about_results: bool = False
    """It costs no time: what it gives, or measures, is wrong."""

    @property
    def lines(self) -> frozenset[int]:
        """Any of these is the right line; the decorators of a function belong to its first one."""
        lines = self.text.splitlines()
        marked = {i for i, line in enumerate(lines, 1) if line.rstrip().endswith(MARKS)}
        return frozenset(
            marked | {i for i, line in enumerate(lines, 1) if line.strip().startswith("@") and i + 1 in marked}
        )

    @property
    def followed(self) -> str:
        """The program after the advice was followed."""
        text = self.text
        for old, new in self.remedy:
            assert old in text, (self.name, old)
            text = text.replace(old, new)
        return text


def is_found(planted: Planted, findings: list[tuple[str, int]]) -> bool:
    return any(rule in planted.rules and line in planted.lines for rule, line in findings)


TUNED = (
    Planted(
        "same table put each step",
        ("repeated-device-put",),
        """\
import jax, jax.numpy as jnp, numpy as np

frequencies = np.random.default_rng(0).random((2048, 512), np.float32)

@jax.jit
def rotate(x, table):
    return x * jnp.cos(table) + jnp.roll(x, 1, -1) * jnp.sin(table)

x = jnp.ones((2048, 512))
for step in range(150):
    table = jax.device_put(frequencies)  # here
    x = rotate(x, table)
print(x.sum())
""",
        (
            ("    table = jax.device_put(frequencies)  # here\n", ""),
            ("x = jnp.ones", "table = jax.device_put(frequencies)\nx = jnp.ones"),
        ),
    ),
    Planted(
        "a cache that grows by one",
        ("growing-shapes",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def attend(q, cache):  # here
    weights = jax.nn.softmax(cache @ q / 8.0)
    return weights @ cache

key = jax.random.key(0)
cache = jax.random.normal(key, (1, 64))
for token in range(30):
    q = attend(cache[-1], cache)  # here
    cache = jnp.concatenate([cache, q[None]])  # here
print(cache.shape, cache.sum())
""",
        (
            ("def attend(q, cache):  # here\n", "def attend(q, cache, n):\n"),
            ("cache @ q / 8.0)", "jnp.where(jnp.arange(64) < n, cache @ q / 8.0, -1e30))"),
            ("(key, (1, 64))", "(key, (64, 64))"),
            ("q = attend(cache[-1], cache)  # here", "q = attend(cache[token], cache, token + 1)"),
            ("cache = jnp.concatenate([cache, q[None]])  # here", "cache = cache.at[token + 1].set(q)"),
        ),
    ),
    Planted(
        "one call for each row",
        ("small-calls",),
        """\
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def score(row):
    return jnp.tanh(row).sum() - jnp.log1p(jnp.abs(row)).mean()

rows = jnp.asarray(np.random.default_rng(0).normal(size=(6000, 16)).astype("f4"))
parts = [jnp.asarray(r) for r in np.asarray(rows)]
scores = []
for row in parts:
    scores.append(score(row))  # here
print(float(jnp.stack(scores).sum()))
""",
        (
            ("@jax.jit\ndef", "@jax.jit\n@jax.vmap\ndef"),
            ("scores = []\nfor row in parts:\n    scores.append(score(row))  # here\n", "scores = [score(rows)]\n"),
        ),
    ),
    Planted(
        "weights that lie otherwise than they are wanted",
        ("resharding",),
        """\
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4,), ("m",))
rows, columns = NamedSharding(mesh, P("m", None)), NamedSharding(mesh, P(None, "m"))

@jax.jit
def layer(w, x):
    return jnp.tanh(x @ w)

w = jax.device_put(jnp.full((1024, 1024), 1e-3), rows)
x = jax.device_put(jnp.ones((64, 1024)), NamedSharding(mesh, P()))
for step in range(60):
    x = layer(jax.device_put(w, columns), x)  # here
print(x.sum())
""",
        (
            ("jnp.full((1024, 1024), 1e-3), rows)", "jnp.full((1024, 1024), 1e-3), columns)"),
            ("jax.device_put(w, columns), x)", "w, x)"),
        ),
        devices=4,
    ),
    Planted(
        "an embedding as a one-hot product",
        ("one-hot-matmul",),
        """\
import jax, jax.numpy as jnp, optax
import flax.linen as nn

class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        table = self.param("table", nn.initializers.normal(), (8192, 64))
        x = jax.nn.one_hot(tokens, 8192) @ table  # here
        return nn.Dense(16)(x).mean(axis=(1, 2))

model = Model()
tokens = jax.random.randint(jax.random.key(1), (16, 64), 0, 8192)
params = model.init(jax.random.key(0), tokens)
rule = optax.sgd(1e-2)
state = rule.init(params)

@jax.jit
def step(params, state, tokens):
    loss, grads = jax.value_and_grad(lambda p: (model.apply(p, tokens) ** 2).mean())(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

for i in range(40):
    params, state, loss = step(params, state, tokens)
print(loss)
""",
        (("jax.nn.one_hot(tokens, 8192) @ table", "jnp.take(table, tokens, axis=0)"),),
    ),
    Planted(
        "distances of all pairs by broadcasting",
        ("broadcast-matmul",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def nearest(points, centres):
    distances = jnp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)  # here
    return jnp.argmin(distances, axis=1)

@jax.jit
def update(points, labels):
    sums = jax.ops.segment_sum(points, labels, 128)
    counts = jax.ops.segment_sum(jnp.ones(len(points)), labels, 128)
    return sums / jnp.maximum(counts, 1)[:, None]

points = jax.random.normal(jax.random.key(0), (8192, 64))
centres = points[:128]
for i in range(30):
    centres = update(points, nearest(points, centres))
print(centres.sum())
""",
        (
            (
                "jnp.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=-1)",
                "(points**2).sum(1)[:, None] - 2 * points @ centres.T + (centres**2).sum(1)[None]",
            ),
        ),
    ),
    Planted(
        "one key for two masks",
        ("key-reuse",),
        """\
import jax, jax.numpy as jnp, optax

def network(params, x, key):
    h = jnp.tanh(x @ params["a"])
    h = h * jax.random.bernoulli(key, 0.9, h.shape)  # here
    h = jnp.tanh(h @ params["b"])
    return h * jax.random.bernoulli(key, 0.9, h.shape)  # here

rule = optax.adam(1e-3)

@jax.jit
def step(params, state, x, key):
    loss, grads = jax.value_and_grad(lambda p: (network(p, x, key) ** 2).mean())(params)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state, loss

key = jax.random.key(0)
params = {"a": jnp.ones((64, 64)) * 0.01, "b": jnp.ones((64, 64)) * 0.01}
state = rule.init(params)
x = jnp.ones((128, 64))
for i in range(50):
    key, mine = jax.random.split(key)
    params, state, loss = step(params, state, x, mine)
print(loss)
""",
        (
            ("    h = jnp.tanh(x @", "    key, other = jax.random.split(key)\n    h = jnp.tanh(x @"),
            ("return h * jax.random.bernoulli(key,", "return h * jax.random.bernoulli(other,"),
        ),
        is_about_results=True,
    ),
    Planted(
        "the root of a number that may be zero, behind where",
        ("where-gradient",),
        """\
import jax, jax.numpy as jnp

def energy(positions):
    delta = positions[:, None] - positions[None]
    square = (delta**2).sum(-1)
    distance = jnp.where(square > 0, jnp.sqrt(square), 0.0)  # here
    return ((distance - 1.0) ** 2).sum()

@jax.jit
def descend(positions):
    return positions - 1e-3 * jax.grad(energy)(positions)

positions = jax.random.normal(jax.random.key(0), (64, 3))
for i in range(50):
    positions = descend(positions)
print(positions.sum())
""",
        (
            (
                "jnp.where(square > 0, jnp.sqrt(square), 0.0)",
                "jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)",
            ),
        ),
        is_about_results=True,
    ),
    Planted(
        "a clock that is read before the device is done",
        ("unawaited-timing",),
        """\
import time
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x)

x = jnp.ones((512, 512)) * 1e-3
step(x).block_until_ready()
times = []
for i in range(30):
    start = time.perf_counter()
    y = step(x)  # here
    times.append(time.perf_counter() - start)  # here
print("a step takes", sum(times) / len(times))
""",
        (("y = step(x)  # here", "y = step(x).block_until_ready()"),),
        is_about_results=True,
    ),
    Planted(
        "a running mean that begins as a Python number",
        ("compiled-twice",),
        """\
import jax, jax.numpy as jnp, optax

rule = optax.adamw(1e-3)

def loss_of(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return (x**2).mean()

@jax.jit
def step(params, state, mean, x):
    loss, grads = jax.value_and_grad(loss_of)(params, x)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, 0.9 * mean + 0.1 * loss

params = [jnp.eye(64) for _ in range(12)]
state, mean = rule.init(params), 0.0
x = jnp.ones((32, 64))
for i in range(40):
    params, state, mean = step(params, state, mean, x)  # here
print(mean)
""",
        (("rule.init(params), 0.0", "rule.init(params), jnp.float32(0.0)"),),
    ),
    Planted(
        "item of each loss",
        ("wait-per-step", "implicit-transfers"),
        """\
import jax, jax.numpy as jnp, numpy as np, optax

rule = optax.sgd(1e-3)

@jax.jit
def step(w, state, x):
    loss, grads = jax.value_and_grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(w, updates), state, loss

def load(rng):
    return np.sort(rng.normal(size=(64, 512)).astype("f4"), axis=0)

rng = np.random.default_rng(0)
w = jnp.ones((512, 512)) * 0.01
state, losses = rule.init(w), []
for i in range(200):
    x = jax.device_put(load(rng))
    w, state, loss = step(w, state, x)
    losses.append(loss.item())  # here
print(np.mean(losses))
""",
        (("losses.append(loss.item())", "losses.append(loss)"), ("np.mean(losses)", "np.mean(jax.device_get(losses))")),
    ),
    Planted(
        "a wait after each step",
        ("wait-per-step",),
        """\
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x):
    return w + 1e-3 * jnp.tanh(x @ w)

rng = np.random.default_rng(0)
w = jnp.ones((512, 512)) * 0.01
for i in range(100):
    x = jax.device_put(np.sort(rng.normal(size=(512, 512)).astype("f4"), axis=0))
    w = step(w, x)
    jax.block_until_ready(w)  # here
print(w.sum())
""",
        (("    jax.block_until_ready(w)  # here\n", ""),),
    ),
    Planted(
        "a lambda jitted in the loop",
        ("jit-in-loop",),
        """\
import jax, jax.numpy as jnp

x = jnp.ones((256, 256))
for i in range(15):
    decayed = jax.jit(lambda a: a * 0.99 + jnp.sin(a))  # here
    x = decayed(x)
print(x.sum())
""",
        (
            ("    decayed = jax.jit(lambda a: a * 0.99 + jnp.sin(a))  # here\n", ""),
            ("for i", "decayed = jax.jit(lambda a: a * 0.99 + jnp.sin(a))\nfor i"),
        ),
    ),
    Planted(
        "the number of the step as a Python int for equinox",
        ("static-churn", "recompile-hot-spot"),
        """\
import equinox as eqx
import jax, jax.numpy as jnp

model = eqx.nn.MLP(16, 16, 32, 2, key=jax.random.key(0))

@eqx.filter_jit
def step(model, x, temperature):  # here
    def loss(model):
        return jnp.mean(jax.vmap(model)(x) ** 2) / temperature
    grads = eqx.filter_grad(loss)(model)
    return eqx.apply_updates(model, jax.tree.map(lambda g: -1e-3 * g, grads))

x = jnp.ones((32, 16))
for i in range(12):
    model = step(model, x, 1.0 + 0.1 * i)  # here
print(model(x[0]).sum())
""",
        (("step(model, x, 1.0 + 0.1 * i)", "step(model, x, jnp.float32(1.0 + 0.1 * i))"),),
    ),
    Planted(
        "a loss printed in each step",
        ("implicit-transfers", "wait-per-step"),
        """\
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(256, 512, rngs=rngs), nnx.Linear(512, 8, rngs=rngs)

    def __call__(self, x):
        return self.b(nnx.relu(self.a(x)))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.sgd(1e-3), wrt=nnx.Param)

@nnx.jit
def step(net, optimizer, x):
    loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
    optimizer.update(net, grads)
    return loss

rng = np.random.default_rng(0)
for i in range(150):
    x = jnp.asarray(np.sort(rng.normal(size=(256, 256)).astype("f4"), axis=0))
    loss = step(net, optimizer, x)
    print(f"step {i}: {float(loss):.3f}")  # here
""",
        (
            ('    print(f"step {i}: {float(loss):.3f}")  # here\n', ""),
            ("rng = np", "losses = []\nrng = np"),
            ("    loss = step(net, optimizer, x)\n", "    losses.append(step(net, optimizer, x))\n"),
        ),
    ),
    Planted(
        "batches of NumPy in float64",
        ("numpy-inputs",),
        """\
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x, y):
    gradient = jax.grad(lambda w: ((x @ w - y) ** 2).mean())(w)
    return w - 1e-3 * gradient

rng = np.random.default_rng(0)
data, target = rng.normal(size=(2048, 1024)), rng.normal(size=(2048,))
w = jnp.zeros(1024)
for i in range(80):
    w = step(w, data, target)  # here
print(w.sum())
""",
        (("w = jnp.zeros", "data, target = jax.device_put((data.astype('f4'), target.astype('f4')))\nw = jnp.zeros"),),
    ),
    Planted(
        "a data set that the step closes over",
        ("captured-constants",),
        """\
import jax, jax.numpy as jnp, numpy as np

rng = np.random.default_rng(0)
images = jnp.asarray(rng.normal(size=(60000, 196)).astype("f4"))

@jax.jit
def step(w, rows):  # here
    x = images[rows]  # here
    return w - 1e-2 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w = jnp.ones((196, 10)) * 0.1
for i in range(40):
    w = step(w, jnp.asarray(rng.integers(0, 60000, 128)))
print(w.sum())
""",
        (("def step(w, rows):  # here", "def step(w, images, rows):"), ("step(w, jnp.", "step(w, images, jnp.")),
    ),
    Planted(
        "layers of a transformer in a Python loop",
        ("unrolled-loop",),
        """\
import jax, jax.numpy as jnp

def block(p, x):
    h = x - x.mean(-1, keepdims=True)
    q, k, v = h @ p["q"], h @ p["k"], h @ p["v"]
    x = x + jax.nn.softmax(q @ k.T / 8.0) @ v
    return x + jax.nn.gelu(x @ p["up"]) @ p["down"]

@jax.jit
def forward(layers, x):
    for p in layers:  # here
        x = block(p, x)
    return x.sum()

key = jax.random.key(0)
sizes = {"q": (64, 64), "k": (64, 64), "v": (64, 64), "up": (64, 256), "down": (256, 64)}
layers = [{n: 0.02 * jax.random.normal(jax.random.fold_in(key, i), s) for n, s in sizes.items()} for i in range(24)]
x = jnp.ones((128, 64))
gradient = jax.jit(jax.grad(forward))
for i in range(10):
    g = gradient(layers, x)
print(g[0]["q"].sum())
""",
        (
            (
                "    for p in layers:  # here\n        x = block(p, x)\n    return x.sum()",
                "    x, _ = jax.lax.scan(lambda x, p: (block(p, x), None), x, layers)\n    return x.sum()",
            ),
            ("x = jnp.ones", "layers = jax.tree.map(lambda *l: jnp.stack(l), *layers)\nx = jnp.ones"),
            ('g[0]["q"]', 'g["q"]'),
        ),
    ),
    Planted(
        "a print left in the step",
        ("host-callback",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    y = jnp.tanh(x) * 0.99
    jax.debug.print("mean {m}", m=y.mean())  # here
    return y

x = jnp.ones((256, 256))
for i in range(400):
    x = step(x)
print(x.sum())
""",
        (('    jax.debug.print("mean {m}", m=y.mean())  # here\n', ""),),
    ),
    Planted(
        "optax outside of the jitted gradient",
        ("eager-operations",),
        """\
import jax, jax.numpy as jnp, optax

rule = optax.adam(1e-3)

@jax.jit
def gradients(params, x):
    def loss(params):
        h = x
        for w in params:
            h = jnp.tanh(h @ w)
        return (h**2).mean()
    return jax.value_and_grad(loss)(params)

params = [jnp.eye(64) for _ in range(6)]
state = rule.init(params)
x = jnp.ones((32, 64))
for i in range(100):
    loss, grads = gradients(params, x)
    updates, state = rule.update(grads, state)  # here
    params = optax.apply_updates(params, updates)  # here
print(loss)
""",
        (
            (
                "params = [",
                "@jax.jit\ndef apply(params, state, grads):\n    updates, state = rule.update(grads, state)\n"
                "    return optax.apply_updates(params, updates), state\n\nparams = [",
            ),
            ("    updates, state = rule.update(grads, state)  # here\n", ""),
            ("params = optax.apply_updates(params, updates)  # here", "params, state = apply(params, state, grads)"),
        ),
    ),
)
