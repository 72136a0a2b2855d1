# runs
# Np.sqrt gives a float64 scalar that promotes the whole network in 64-bit mode.
"""Event sequence encoder. Time stamps are int64 nanoseconds, hence 64-bit mode; the network is float32."""
import jax

jax.config.update("jax_enable_x64", True)

import math

import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn

F32 = jnp.float32
DIM, HEADS, LENGTH, BATCH = 48, 4, 24, 16


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
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(size)  # expect: float64-promotion
        out = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        return nn.Dense(d, param_dtype=F32)(out.reshape(b, t, d))


class EventNet(nn.Module):
    @nn.compact
    def __call__(self, kinds, stamps):
        x = nn.Embed(32, DIM, param_dtype=F32)(kinds) + nn.Dense(DIM, param_dtype=F32)(gaps(stamps)[..., None])
        for _ in range(1):
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
    for i in range(1, 31):
        key, sub = jax.random.split(key)
        params, opt_state, loss = step(params, opt_state, data, sub)
        if i % 15 == 0:
            print(f"step {i} loss {float(loss):.4f}")


if __name__ == "__main__":
    main()
