# runs
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


def sequences(key, n, t=16):
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
    x, y = sequences(k_train, 1024)
    x_test, y_test = sequences(k_test, 500)
    model = Recurrent(4, 24, k_model)
    opt_state = tx.init(eqx.filter(model, eqx.is_inexact_array))
    for e in range(4):
        key, sub = jax.random.split(key)
        model, opt_state, loss = epoch(model, opt_state, x, y, sub)
        print(f"epoch {e} loss {float(loss):.4f} acc {float(accuracy(model, x_test, y_test)):.3f}")


if __name__ == "__main__":
    main()
