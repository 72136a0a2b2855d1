"""Fifteen more programs as they should be, written with `fresh.py`: near each pitfall, and none of them."""

from __future__ import annotations

FRESH_CLEAN: dict[str, str] = {
    "generation into an array of fixed length": """\
import equinox as eqx
import jax, jax.numpy as jnp

class Model(eqx.Module):
    embed: eqx.nn.Embedding
    head: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.embed, self.head = eqx.nn.Embedding(50, 32, key=a), eqx.nn.Linear(32, 50, key=b)

    def __call__(self, tokens, n):
        x = jax.vmap(self.embed)(tokens)
        mask = jnp.arange(len(tokens)) < n
        return self.head(jnp.sum(jnp.where(mask[:, None], x, 0), 0) / n)

@eqx.filter_jit
def generate(model, prompt, key):
    start = jnp.zeros(64, jnp.int32).at[: len(prompt)].set(prompt)
    def one(n, carry):
        tokens, key = carry
        key, mine = jax.random.split(key)
        return tokens.at[n].set(jax.random.categorical(mine, model(tokens, n))), key
    return jax.lax.fori_loop(len(prompt), 64, one, (start, key))[0]

model = Model(jax.random.key(0))
for seed in range(5):
    print(generate(model, jnp.array([1, 2, 3]), jax.random.key(seed))[:10])
""",
    "blackjax in a scan": """\
import blackjax, jax, jax.numpy as jnp

data = jax.random.normal(jax.random.key(0), (200,)) * 2 + 1

def logdensity(p):
    return jax.scipy.stats.norm.logpdf(data, p["loc"], jnp.exp(p["log_scale"])).sum() - p["loc"] ** 2

def infer(key, samples=1000):
    warm, run = jax.random.split(key)
    adapt = blackjax.window_adaptation(blackjax.nuts, logdensity)
    start = {"loc": jnp.zeros(()), "log_scale": jnp.zeros(())}
    (state, parameters), _ = adapt.run(warm, start, num_steps=200)
    kernel = blackjax.nuts(logdensity, **parameters).step
    @jax.jit
    def sample(state, key):
        def one(state, k):
            state, _ = kernel(k, state)
            return state, state.position
        return jax.lax.scan(one, state, jax.random.split(key, samples))[1]
    return sample(state, run)

positions = infer(jax.random.key(1))
print(positions["loc"].mean(), positions["log_scale"].std())
""",
    "stochastic variational inference with numpyro": """\
import jax, jax.numpy as jnp, numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([4]).to_event(1))
    s = numpyro.sample("s", dist.HalfNormal(1))
    with numpyro.plate("data", len(x)):
        numpyro.sample("y", dist.Normal(x @ w, s), obs=y)

x = jax.random.normal(jax.random.key(0), (500, 4))
y = x @ jnp.arange(4.0)
svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-2), Trace_ELBO())
found = svi.run(jax.random.key(1), 1000, x, y, progress_bar=False)
print(found.losses[-1], found.params["w_auto_loc"])
""",
    "diffrax in one jitted loss": """\
import diffrax, equinox as eqx, jax, jax.numpy as jnp, optax

class Field(eqx.Module):
    net: eqx.nn.MLP

    def __call__(self, t, y, args):
        return self.net(y)

def solve(field, y0):
    found = diffrax.diffeqsolve(diffrax.ODETerm(field), diffrax.Tsit5(), 0.0, 1.0, 0.1, y0,
                                saveat=diffrax.SaveAt(ts=jnp.linspace(0, 1, 5)))
    return found.ys

field = Field(eqx.nn.MLP(2, 2, 16, 2, activation=jnp.tanh, key=jax.random.key(0)))
rule = optax.adam(1e-3)
state = rule.init(eqx.filter(field, eqx.is_inexact_array))

@eqx.filter_jit
def step(field, state, y0, wanted):
    def loss_of(field):
        return jnp.mean((jax.vmap(lambda y: solve(field, y))(y0) - wanted) ** 2)
    loss, grads = eqx.filter_value_and_grad(loss_of)(field)
    updates, state = rule.update(grads, state)
    return eqx.apply_updates(field, updates), state, loss

y0 = jax.random.normal(jax.random.key(1), (32, 2))
wanted = y0[:, None] * jnp.exp(-jnp.linspace(0, 1, 5))[None, :, None]
losses = []
for i in range(50):
    field, state, loss = step(field, state, y0, wanted)
    losses.append(loss)
print(losses[0], losses[-1])
""",
    "k-means by products": """\
import jax, jax.numpy as jnp

@jax.jit
def lloyd(points, centers):
    near = jnp.argmin((centers**2).sum(-1) - 2 * points @ centers.T, axis=1)
    total = jax.ops.segment_sum(points, near, centers.shape[0])
    count = jax.ops.segment_sum(jnp.ones(len(points)), near, centers.shape[0])
    return total / jnp.maximum(count, 1)[:, None]

points = jax.random.normal(jax.random.key(0), (4096, 64))
centers = jax.lax.fori_loop(0, 20, lambda _, c: lloyd(points, c), points[:128])
print(centers.sum())
""",
    "a grid of differences that is small": """\
import jax, jax.numpy as jnp

@jax.jit
def forces(x):
    d = x[:, None, :] - x[None, :, :]
    r2 = (d**2).sum(-1) + jnp.eye(len(x))
    return (d * (1 / r2**2 - 0.1 / r2)[..., None]).sum(1)

@jax.jit
def simulate(x, v):
    def one(state, _):
        x, v = state
        v = v + 0.01 * forces(x)
        return (x + 0.01 * v, v), (v**2).sum()
    return jax.lax.scan(one, (x, v), None, length=200)

x = jax.random.normal(jax.random.key(0), (64, 3))
(x, v), energy = simulate(x, jnp.zeros_like(x))
print(energy[-1])
""",
    "two rates and one program": """\
import jax, jax.numpy as jnp, optax

x = jax.random.normal(jax.random.key(0), (256, 20))
y = x @ jnp.arange(20.0)
rule = optax.inject_hyperparams(optax.adam)(1e-3)

@jax.jit
def fit(rate):
    state = rule.init(jnp.zeros(20))
    state.hyperparams["learning_rate"] = rate
    def one(carry, _):
        w, state = carry
        loss, g = jax.value_and_grad(lambda w: jnp.mean((x @ w - y) ** 2))(w)
        updates, state = rule.update(g, state, w)
        return (optax.apply_updates(w, updates), state), loss
    return jax.lax.scan(one, (jnp.zeros(20), state), None, length=100)[1][-1]

rates = jnp.array([1e-3, 1e-2, 1e-1])
print(jax.vmap(fit)(rates))
""",
    "padded sequences in buckets": """\
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def step(w, x, mask):
    def loss_of(w):
        return jnp.sum(mask * (jnp.tanh(x @ w)[..., 0] - 1) ** 2) / mask.sum()
    return w - 0.1 * jax.grad(loss_of)(w)

rng = np.random.default_rng(0)
w = jnp.zeros((16, 1))
for i in range(120):
    length = int(rng.integers(5, 64))
    padded = 32 if length <= 32 else 64
    x = np.zeros((8, padded, 16), np.float32)
    x[:, :length] = rng.standard_normal((8, length, 16), np.float32)
    mask = np.broadcast_to((np.arange(padded) < length).astype(np.float32), (8, padded))
    w = step(w, *jax.device_put((x, mask.copy())))
print(w.sum())
""",
    "dropout of nnx with its own keys": """\
import jax, jax.numpy as jnp, optax
from flax import nnx

class Net(nnx.Module):
    def __init__(self, rngs):
        self.a = nnx.Linear(32, 64, rngs=rngs)
        self.norm = nnx.BatchNorm(64, rngs=rngs)
        self.drop = nnx.Dropout(0.2, rngs=rngs)
        self.b = nnx.Linear(64, 4, rngs=rngs)

    def __call__(self, x):
        return self.b(self.drop(nnx.relu(self.norm(self.a(x)))))

net = Net(nnx.Rngs(0))
optimizer = nnx.Optimizer(net, optax.adamw(1e-3), wrt=nnx.Param)
metrics = nnx.MultiMetric(loss=nnx.metrics.Average("loss"))

@nnx.jit
def train_step(net, optimizer, metrics, x, y):
    def loss_of(net):
        return optax.softmax_cross_entropy_with_integer_labels(net(x), y).mean()
    loss, grads = nnx.value_and_grad(loss_of)(net)
    metrics.update(loss=loss)
    optimizer.update(net, grads)

x = jax.random.normal(jax.random.key(0), (128, 32))
y = jnp.argmax(x[:, :4], -1)
for i in range(200):
    train_step(net, optimizer, metrics, x, y)
    if i % 100 == 99:
        print(i, metrics.compute())
        metrics.reset()
""",
    "an angle by arctan2": """\
import jax, jax.numpy as jnp, numpy as np

def angle(u, v):
    across = jnp.cross(u, v)
    sine = jnp.sqrt(jnp.sum(across**2, -1) + 1e-12)
    return jnp.arctan2(sine, jnp.sum(u * v, -1))

def energy(x, triples):
    i, j, k = triples.T
    return jnp.sum((angle(x[i] - x[j], x[k] - x[j]) - 1.9) ** 2)

@jax.jit
def relax(x, triples):
    return jax.lax.fori_loop(0, 100, lambda _, x: x - 1e-3 * jax.grad(energy)(x, triples), x)

triples = jnp.asarray(np.random.default_rng(0).permutation(99).reshape(33, 3))
x = relax(jax.random.normal(jax.random.key(0), (100, 3)), triples)
print(x.std())
""",
    "early stopping that looks once an epoch": """\
import jax, jax.numpy as jnp, numpy as np, optax
import flax.linen as nn
from flax.training.train_state import TrainState

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(1)(nn.tanh(nn.Dense(64)(x)))[..., 0]

rng = np.random.default_rng(0)
x = rng.standard_normal((2048, 16), np.float32)
y = np.sin(x.sum(-1))
net = Net()
state = TrainState.create(apply_fn=net.apply, params=net.init(jax.random.key(0), x[:1]), tx=optax.adam(1e-3))

@jax.jit
def train_step(state, x, y):
    loss, grads = jax.value_and_grad(lambda p: jnp.mean((state.apply_fn(p, x) - y) ** 2))(state.params)
    return state.apply_gradients(grads=grads), loss

best = float("inf")
for epoch in range(8):
    order = rng.permutation(len(x)).reshape(-1, 128)
    losses = []
    for i in order:
        state, loss = train_step(state, jax.device_put(x[i]), jax.device_put(y[i]))
        losses.append(loss)
    mean = float(jnp.mean(jnp.stack(losses)))
    if mean > best:
        break
    best = mean
print(best)
""",
    "timeit that waits": """\
import timeit
import jax, jax.numpy as jnp

@jax.jit
def forward(w, x):
    return jnp.tanh(x @ w) @ w

w = jax.random.normal(jax.random.key(0), (512, 512))
x = jax.random.normal(jax.random.key(1), (512, 512))
jax.block_until_ready(forward(w, x))
took = timeit.repeat(lambda: jax.block_until_ready(forward(w, x)), number=20, repeat=3)
print(f"{min(took) / 20 * 1e6:.0f} us per call")
""",
    "mixed precision with a scale": """\
import jax, jax.numpy as jnp, optax
import flax.linen as nn

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.Dense(64, dtype=jnp.bfloat16)(x)
        x = nn.gelu(x)
        return nn.Dense(8, dtype=jnp.float32)(x)

net = Net()
x = jax.random.normal(jax.random.key(0), (64, 32), jnp.bfloat16)
y = jnp.arange(64) % 8
params = net.init(jax.random.key(1), x)
rule = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(1e-3, 200)))
state = rule.init(params)

@jax.jit
def step(params, state, x, y):
    def loss_of(p):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()
    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = rule.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss

for i in range(200):
    params, state, loss = step(params, state, x, y)
print(loss)
""",
    "data parallel with shard_map": """\
import jax, jax.numpy as jnp, numpy as np
from functools import partial
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))

@jax.jit
@partial(jax.shard_map, mesh=mesh, in_specs=(P(), P("data")), out_specs=P())
def step(w, x):
    g = jax.grad(lambda w: jnp.mean((jnp.tanh(x @ w) - x) ** 2))(w)
    return w - 0.1 * jax.lax.pmean(g, "data")

w = jax.device_put(jnp.eye(64), NamedSharding(mesh, P()))
x = jax.device_put(jax.random.normal(jax.random.key(0), (256, 64)), NamedSharding(mesh, P("data")))
for i in range(100):
    w = step(w, x)
print(w.sum())
""",
    "products with vectors in a Krylov method": """\
import jax, jax.numpy as jnp

def loss(w):
    return jnp.sum(jnp.tanh(jnp.outer(w, w)) ** 2) / w.size + jnp.sum(jnp.cosh(w))

@jax.jit
def newton(w):
    g = jax.grad(loss)(w)
    def product(v):
        return jax.jvp(jax.grad(loss), (w,), (v,))[1]
    direction, _ = jax.scipy.sparse.linalg.cg(product, g, maxiter=20)
    return w - direction

w = jax.random.normal(jax.random.key(0), (200,))
for i in range(10):
    w = newton(w)
print(loss(w))
""",
}
