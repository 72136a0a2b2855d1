# runs
# Sharded_ensemble.
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
    x = rng.standard_normal((2048, 32), dtype=np.float32)
    y = np.sin(x[:, 0] + 0.5 * x[:, 1]).astype(np.float32)
    batches = place_batches(x, y, members, 256, by_member, seed=1)
    keys = jax.random.split(jax.random.key(0), members)
    optim = optax.adam(3e-3)
    params = jax.vmap(init, in_axes=(0, None, None))(keys, 32, 64)
    params, opt_state = jax.device_put((params, jax.vmap(optim.init)(params)), by_member)
    step = make_step(optim)
    for epoch in range(12):
        for batch in batches:
            params, opt_state, losses = step(params, opt_state, batch)
        if epoch % 4 == 3:
            print(f"epoch {epoch + 1}: losses {np.round(np.asarray(losses), 4)}")


if __name__ == "__main__":
    main()
