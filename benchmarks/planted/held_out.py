"""Ten more programs with one pitfall each, set aside while the rules were written: known to their author, not run."""

from __future__ import annotations

from planted.planted import Planted

HELD_OUT = (
    Planted(
        "nnx.jit in the body of a function",
        ("jit-in-loop", "recompile-hot-spot"),
        """\
import jax, jax.numpy as jnp, optax
from flax import nnx

net = nnx.Linear(64, 64, rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)

def train(net, optimizer, x):
    @nnx.jit  # here
    def step(net, optimizer, x):  # here
        loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)
        optimizer.update(net, grads)
        return loss
    return step(net, optimizer, x)  # here

x = jnp.ones((32, 64))
for i in range(8):
    loss = train(net, optimizer, x)
print(loss)
""",
        (
            (
                "def train(net, optimizer, x):\n    @nnx.jit  # here\n    def step(net, optimizer, x):  # here\n"
                "        loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)\n"
                "        optimizer.update(net, grads)\n        return loss\n"
                "    return step(net, optimizer, x)  # here\n",
                "@nnx.jit\ndef train(net, optimizer, x):\n"
                "    loss, grads = nnx.value_and_grad(lambda net: (net(x) ** 2).mean())(net)\n"
                "    optimizer.update(net, grads)\n    return loss\n",
            ),
        ),
    ),
    Planted(
        "a rate in an equinox module that decays in Python",
        ("static-churn", "recompile-hot-spot"),
        """\
import equinox as eqx
import jax, jax.numpy as jnp

class Model(eqx.Module):
    linear: eqx.nn.Linear
    rate: float

    def __call__(self, x):
        return jnp.tanh(self.linear(x)) * self.rate

@eqx.filter_jit
def predict(model, x):  # here
    return jax.vmap(model)(x)

model = Model(eqx.nn.Linear(32, 32, key=jax.random.key(0)), 1.0)
x = jnp.ones((64, 32))
for i in range(12):
    model = eqx.tree_at(lambda m: m.rate, model, model.rate * 0.95)
    x = predict(model, x)  # here
print(x.sum())
""",
        (("key=jax.random.key(0)), 1.0)", "key=jax.random.key(0)), jnp.float32(1.0))"),),
    ),
    Planted(
        "a kernel of all pairs",
        ("broadcast-matmul",),
        """\
import jax, jax.numpy as jnp

def kernel(x, y, scale):
    difference = x[:, None] - y[None]
    return jnp.exp(-jnp.square(difference).sum(-1) / scale)  # here

@jax.jit
def evidence(scale, x, targets):
    gram = kernel(x, x, scale) + 0.1 * jnp.eye(len(x))
    factor = jax.scipy.linalg.cho_factor(gram)
    alpha = jax.scipy.linalg.cho_solve(factor, targets)
    return targets @ alpha

x = jax.random.normal(jax.random.key(0), (1024, 128))
targets = jnp.sin(x.sum(1))
for i in range(8):
    value = evidence(50.0 + i, x, targets)
print(value)
""",
        (
            (
                "    difference = x[:, None] - y[None]\n    return jnp.exp(-jnp.square(difference).sum(-1) / scale)",
                "    square = (x**2).sum(1)[:, None] + (y**2).sum(1)[None] - 2 * x @ y.T\n"
                "    return jnp.exp(-square / scale)",
            ),
        ),
    ),
    Planted(
        "sentences of many lengths",
        ("recompile-hot-spot", "growing-shapes"),
        """\
import jax, jax.numpy as jnp, numpy as np
import flax.linen as nn

class Tagger(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(1000, 32)(tokens)
        return nn.Dense(8)(nn.relu(nn.Dense(64)(x)))

model = Tagger()
rng = np.random.default_rng(0)
params = model.init(jax.random.key(0), jnp.zeros((4, 8), int))

@jax.jit
def tag(params, tokens):  # here
    return model.apply(params, tokens).argmax(-1)

for i in range(25):
    length = int(rng.integers(5, 60))
    tags = tag(params, jnp.asarray(rng.integers(0, 1000, (4, length))))  # here
print(tags.sum())
""",
        (
            (
                "jnp.asarray(rng.integers(0, 1000, (4, length)))",
                "jnp.asarray(np.pad(rng.integers(0, 1000, (4, length)), ((0, 0), (0, 64 - length))))",
            ),
        ),
    ),
    Planted(
        "dropout with the same key at every step",
        ("key-reuse",),
        """\
import jax, jax.numpy as jnp, optax
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.Dropout(0.5, deterministic=False)(x)  # here
        return nn.Dense(1)(x)

net, dropout = Net(), jax.random.PRNGKey(1)
x = jax.random.normal(jax.random.PRNGKey(2), (64, 32))
params = net.init({"params": jax.random.PRNGKey(0), "dropout": dropout}, x)
rule = optax.sgd(1e-2)
state = rule.init(params)

@jax.jit
def step(params, state, x, key):  # here
    grads = jax.grad(lambda p: (net.apply(p, x, rngs={"dropout": key}) ** 2).mean())(params)  # here
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state

for i in range(40):
    params, state = step(params, state, x, dropout)  # here
print(jax.tree.leaves(params)[0].sum())
""",
        (("step(params, state, x, dropout)", "step(params, state, x, jax.random.fold_in(dropout, i))"),),
        is_about_results=True,
    ),
    Planted(
        "a state of 64 MiB that is copied",
        ("donation-possible",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def advance(field, force):  # here
    lap = sum(jnp.roll(field, s, a) for s in (1, -1) for a in (0, 1)) - 4 * field
    return field + 1e-3 * lap + force

field = jnp.zeros((2048, 4096))
force = jax.random.normal(jax.random.key(0), (2048, 4096))
for i in range(30):
    field = advance(field, force)  # here
print(field.sum())
""",
        (("@jax.jit\n", "from functools import partial\n\n@partial(jax.jit, donate_argnums=0)\n"),),
    ),
    Planted(
        "an entropy whose gradient is NaN at zero",
        ("where-gradient",),
        """\
import equinox as eqx
import jax, jax.numpy as jnp

model = eqx.nn.Linear(16, 8, key=jax.random.key(0))

@eqx.filter_value_and_grad
def entropy(model, x):
    p = jax.nn.relu(jax.vmap(model)(x))
    p = p / (p.sum(-1, keepdims=True) + 1.0)
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0.0))  # here

@eqx.filter_jit
def step(model, x):
    value, grads = entropy(model, x)
    return value, eqx.apply_updates(model, jax.tree.map(lambda g: 1e-2 * g, grads))

x = jax.random.normal(jax.random.key(1), (32, 16))
for i in range(20):
    value, model = step(model, x)
print(value)
""",
        (("jnp.where(p > 0, p * jnp.log(p), 0.0)", "jnp.where(p > 0, p * jnp.log(jnp.where(p > 0, p, 1.0)), 0.0)"),),
        is_about_results=True,
    ),
    Planted(
        "losses that are added up in bfloat16",
        ("low-precision-accumulation",),
        """\
import jax, jax.numpy as jnp

@jax.jit
def total_loss(w, batches):  # here
    def add(total, x):
        loss = jnp.mean((x @ w) ** 2)
        return total + loss, None  # here
    total, _ = jax.lax.scan(add, jnp.bfloat16(0), batches)  # here
    return total

w = jnp.ones(16, jnp.bfloat16)
batches = jax.random.normal(jax.random.key(0), (4000, 8, 16), jnp.bfloat16)
for i in range(5):
    value = total_loss(w, batches)
print(value)
""",
        (
            ("return total + loss, None  # here", "return total + loss.astype(jnp.float32), None"),
            ("jnp.bfloat16(0)", "jnp.float32(0)"),
        ),
        is_about_results=True,
    ),
    Planted(
        "a loop over the heads",
        ("python-loop-vmap", "unrolled-loop"),
        """\
import jax, jax.numpy as jnp

@jax.jit
def attention(q, k, v):
    heads = []
    for h in range(q.shape[0]):  # here
        scores = jax.nn.softmax(q[h] @ k[h].T / 8.0, axis=-1)
        heads.append(scores @ v[h])
    return jnp.stack(heads)

q, k, v = jax.random.normal(jax.random.key(0), (3, 32, 128, 32))
for i in range(20):
    q = attention(q, k, v)
print(q.sum())
""",
        (
            (
                "    heads = []\n    for h in range(q.shape[0]):  # here\n"
                "        scores = jax.nn.softmax(q[h] @ k[h].T / 8.0, axis=-1)\n"
                "        heads.append(scores @ v[h])\n    return jnp.stack(heads)\n",
                "    def head(q, k, v):\n        return jax.nn.softmax(q @ k.T / 8.0, axis=-1) @ v\n\n"
                "    return jax.vmap(head)(q, k, v)\n",
            ),
        ),
    ),
    Planted(
        "the positions made into an array in each step",
        ("repeated-device-put", "numpy-inputs"),
        """\
import jax, jax.numpy as jnp, numpy as np
from flax import nnx

positions = np.sin(np.arange(1024)[:, None] / 10 ** (np.arange(256) / 64)).astype("f4")

@nnx.jit
def encode(net, x, positions):
    return nnx.relu(net(x + positions))

net = nnx.Linear(256, 256, rngs=nnx.Rngs(0))
x = jnp.ones((1024, 256))
for i in range(60):
    x = encode(net, x, jnp.asarray(positions))  # here
print(x.sum())
""",
        (
            ("jnp.asarray(positions))  # here", "positions)"),
            ("x = jnp.ones", "positions = jnp.asarray(positions)\nx = jnp.ones"),
        ),
    ),
)
