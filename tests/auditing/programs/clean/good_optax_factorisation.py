# runs
"""Matrix factorisation with optax; embeddings are gathered and the loop is a scan per epoch."""
import dataclasses
import functools

import jax
import jax.numpy as jnp
import optax


@dataclasses.dataclass(frozen=True)
class Config:
    users: int = 600
    items: int = 400
    dim: int = 32
    batch: int = 512
    steps_per_epoch: int = 80
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
    data = ratings(k_data, 44_000)
    test, train = (tuple(a[s] for a in data) for s in (slice(0, 4_000), slice(4_000, None)))
    params = init(k_init)
    opt_state = TX.init(params)
    for epoch in range(CFG.epochs):
        params, opt_state, loss = run_epoch(params, opt_state, train, jax.random.fold_in(key, epoch))
        print(f"epoch {epoch} loss {float(loss):.4f} test rmse {float(rmse(params, test)):.4f}")


if __name__ == "__main__":
    main()
