"""Fifteen programs as they should be: an audit has no warning for them, and three infos at most."""

from __future__ import annotations

CLEAN: dict[str, str] = {
    "linen with optax": """\
import jax, jax.numpy as jnp, optax, functools
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.relu(nn.Dense(128)(x))
        x = nn.Dropout(0.2, deterministic=not train)(x)
        return nn.Dense(10)(x)

net = Net()
x, y = jax.random.normal(jax.random.key(0), (256, 64)), jnp.arange(256) % 10
params = net.init(jax.random.key(1), x, False)
rule = optax.adam(1e-3)
state = rule.init(params)

@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, x, y, key):
    def loss_of(p):
        logits = net.apply(p, x, True, rngs={"dropout": key})
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

key = jax.random.key(2)
for i in range(300):
    params, state, loss = step(params, state, x, y, jax.random.fold_in(key, i))
    if i % 50 == 0:
        print(i, float(loss))
""",
    "nnx with optax": """\
import jax, jax.numpy as jnp, numpy as np, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a, self.b = nnx.Linear(64, 128, rngs=rngs), nnx.Linear(128, 10, rngs=rngs)
        self.drop = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(nnx.relu(self.a(x))))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adam(1e-3), wrt=nnx.Param)

@nnx.jit
def step(net, optimizer, x, y):
    def loss_of(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(x), y).mean()
    loss, grads = nnx.value_and_grad(loss_of)(net)
    optimizer.update(net, grads)
    return loss

rng = np.random.default_rng(0)
losses = []
for i in range(100):
    x, y = jax.device_put((rng.normal(size=(128, 64)).astype("f4"), rng.integers(0, 10, 128).astype("i4")))
    losses.append(step(net, optimizer, x, y))
print(np.mean(jax.device_get(losses)))
""",
    "equinox with optax": """\
import equinox as eqx
import jax, jax.numpy as jnp, optax

model = eqx.nn.MLP(32, 4, 64, 3, key=jax.random.key(0))
rule = optax.adamw(1e-3)
state = rule.init(eqx.filter(model, eqx.is_array))

@eqx.filter_jit
def step(model, state, x, y):
    loss, grads = eqx.filter_value_and_grad(lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2))(model)
    updates, state = rule.update(grads, state, eqx.filter(model, eqx.is_array))
    return eqx.apply_updates(model, updates), state, loss

x = jax.random.normal(jax.random.key(1), (128, 32))
y = x[:, :4]
for i in range(200):
    model, state, loss = step(model, state, x, y)
print(loss)
""",
    "a scan over the steps": """\
import jax, jax.numpy as jnp

@jax.jit
def train(w, xs):
    def step(w, x):
        loss, g = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        return w - 1e-2 * g, loss
    return jax.lax.scan(step, w, xs)

xs = jax.random.normal(jax.random.key(0), (200, 64, 32))
w = jnp.ones(32)
for epoch in range(10):
    w, losses = train(w, xs)
print(losses.mean())
""",
    "molecules": """\
import jax, jax.numpy as jnp

def energy(r):
    d2 = ((r[:, None] - r[None]) ** 2).sum(-1) + jnp.eye(len(r)) * 1e3
    s = 1.0 / d2**3
    return 2 * (s**2 - s).sum()

force = jax.grad(lambda r: -energy(r))

@jax.jit
def simulate(r, v):
    def body(_, state):
        r, v = state
        v = v + 5e-4 * force(r)
        return r + 1e-3 * v, v + 5e-4 * force(r + 1e-3 * v)
    return jax.lax.fori_loop(0, 100, body, (r, v))

r = jnp.stack(jnp.meshgrid(*[jnp.arange(4.0) * 1.2] * 3), -1).reshape(-1, 3)
v = jnp.zeros_like(r)
for i in range(10):
    r, v = simulate(r, v)
print(energy(r))
""",
    "epochs over a data set": """\
import jax, jax.numpy as jnp, numpy as np

rng = np.random.default_rng(0)
data = rng.normal(size=(4096, 256)).astype("f4")

@jax.jit
def step(w, x):
    return w - 1e-3 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w = jnp.ones((256, 64)) * 0.01
for epoch in range(8):
    for rows in np.split(rng.permutation(4096), 16):
        w = step(w, jax.device_put(data[rows]))
print(w.sum())
""",
    "a loader that goes over the same batches": """\
import jax, jax.numpy as jnp, numpy as np

batches = [b for b in np.random.default_rng(0).normal(size=(12, 256, 256)).astype("f4")]

@jax.jit
def step(w, x):
    return w - 1e-3 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w = jnp.ones((256, 64)) * 0.01
for epoch in range(8):
    for batch in batches:
        w = step(w, jax.device_put(batch))
    print(epoch, float(w.sum()))
""",
    "random numbers from split keys": """\
import jax, jax.numpy as jnp

@jax.jit
def estimate(key, n_inside):
    def body(carry, _):
        key, inside = carry
        key, a, b = jax.random.split(key, 3)
        x, y = jax.random.uniform(a, (1000,)), jax.random.uniform(b, (1000,))
        return (key, inside + (x**2 + y**2 < 1).sum()), None
    (key, n_inside), _ = jax.lax.scan(body, (key, n_inside), None, length=100)
    return key, n_inside

key, n = jax.random.key(0), jnp.int32(0)
for i in range(20):
    key, n = estimate(key, n)
print(4 * n / 2e6)
""",
    "a safe logarithm": """\
import jax, jax.numpy as jnp

def entropy(w, x):
    p = jax.nn.relu(x @ w)
    p = p / (p.sum(-1, keepdims=True) + 1.0)
    safe = jnp.where(p > 0, p, 1.0)
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(safe), 0.0))

@jax.jit
def step(w, x):
    return w + 1e-3 * jax.grad(entropy)(w, x)

x = jax.random.normal(jax.random.key(0), (128, 64))
w = jax.random.normal(jax.random.key(1), (64, 32))
for i in range(100):
    w = step(w, x)
print(w.sum())
""",
    "nearest neighbours by a product": """\
import jax, jax.numpy as jnp

@jax.jit
def nearest(queries, points):
    distances = (queries**2).sum(1)[:, None] - 2 * queries @ points.T + (points**2).sum(1)[None]
    return jax.lax.top_k(-distances, 8)[1]

points = jax.random.normal(jax.random.key(0), (4096, 64))
for i in range(15):
    found = nearest(points[i * 256 : (i + 1) * 256], points)
print(found.sum())
""",
    "a clock that waits": """\
import time
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x.T @ x)

x = jnp.ones((256, 256)) * 1e-2
x = step(x).block_until_ready()
begun = time.perf_counter()
for i in range(100):
    x = step(x)
x.block_until_ready()
print("a step takes", (time.perf_counter() - begun) / 100)
""",
    "data parallel": """\
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((len(jax.devices()),), ("d",))
split, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())

@jax.jit
def step(w, x):
    return w - 1e-2 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

rng = np.random.default_rng(0)
w = jax.device_put(jnp.ones((128, 128)) * 0.01, whole)
for i in range(60):
    w = step(w, jax.device_put(rng.normal(size=(256, 128)).astype("f4"), split))
print(w.sum())
""",
    "inference of an embedding model": """\
import jax, jax.numpy as jnp, numpy as np
import flax.linen as nn

class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens, mask):
        x = nn.Embed(4096, 64)(tokens)
        x = nn.gelu(nn.Dense(128)(x))
        return (x * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)

model = Model()
rng = np.random.default_rng(0)
tokens, mask = jnp.zeros((16, 64), jnp.int32), jnp.ones((16, 64))
params = model.init(jax.random.key(0), tokens, mask)
embed = jax.jit(model.apply)
found = []
for i in range(40):
    lengths = rng.integers(5, 64, 16)
    mask = (np.arange(64) < lengths[:, None]).astype("f4")
    tokens = rng.integers(0, 4096, (16, 64)).astype("i4")
    found.append(embed(params, *jax.device_put((tokens, mask))))
print(np.concatenate(jax.device_get(found)).shape)
""",
    "a simulation of a field": """\
import functools
import jax, jax.numpy as jnp

@functools.partial(jax.jit, donate_argnums=0, static_argnames="steps")
def advance(field, rate, steps):
    def body(_, u):
        lap = sum(jnp.roll(u, s, a) for s in (1, -1) for a in (0, 1)) - 4 * u
        return u + rate * lap
    return jax.lax.fori_loop(0, steps, body, field)

field = jax.random.normal(jax.random.key(0), (512, 512))
for i in range(20):
    field = advance(field, 0.1, steps=10)
print(field.std())
""",
    "a step with gradients that are clipped, in bf16": """\
import functools
import jax, jax.numpy as jnp, optax

rule = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1e-2, momentum=0.9))

def loss_of(params, x):
    h = x.astype(jnp.bfloat16)
    for w in params:
        h = jax.nn.relu(h @ w.astype(jnp.bfloat16))
    return (h.astype(jnp.float32) ** 2).mean()

@functools.partial(jax.jit, donate_argnums=(0, 1))
def step(params, state, x):
    grads = jax.grad(loss_of)(params, x)
    updates, state = rule.update(grads, state)
    return optax.apply_updates(params, updates), state

keys = jax.random.split(jax.random.key(0), 4)
params = [0.1 * jax.random.normal(k, (128, 128)) for k in keys]
state = rule.init(params)
x = jax.random.normal(jax.random.key(1), (64, 128))
for i in range(60):
    params, state = step(params, state, x)
print(params[0].sum())
""",
}
