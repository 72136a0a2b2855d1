# runs
"""Denoising autoencoder in flax.nnx, written functionally: split once, step jitted once."""
import pathlib
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

DIM, BATCH, STEPS = 64, 64, 150


class Autoencoder(nnx.Module):
    def __init__(self, width, rngs):
        self.down = nnx.Linear(DIM, width, rngs=rngs)
        self.mid = nnx.Linear(width, width, rngs=rngs)
        self.up = nnx.Linear(width, DIM, rngs=rngs)

    def __call__(self, x):
        return self.up(nnx.gelu(self.mid(nnx.gelu(self.down(x)))))


graphdef, initial = nnx.split(Autoencoder(96, nnx.Rngs(0)))
tx = optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 2e-3, 50, STEPS))


def signals(key, n):
    """Sums of three sine waves."""
    k_f, k_p, k_a = jax.random.split(key, 3)
    freq = jax.random.uniform(k_f, (n, 3, 1), minval=1.0, maxval=5.0)
    phase = jax.random.uniform(k_p, (n, 3, 1), maxval=2 * jnp.pi)
    amp = jax.random.uniform(k_a, (n, 3, 1), minval=0.3, maxval=1.0)
    t = jnp.linspace(0.0, 2 * jnp.pi, DIM)
    return jnp.sum(amp * jnp.sin(freq * t + phase), axis=1)


def loss_fn(params, clean, noisy):
    return jnp.mean((nnx.merge(graphdef, params)(noisy) - clean) ** 2)


@jax.jit
def train_step(params, opt_state, key):
    k_data, k_noise = jax.random.split(key)
    clean = signals(k_data, BATCH)
    noisy = clean + 0.5 * jax.random.normal(k_noise, clean.shape)
    loss, grads = jax.value_and_grad(loss_fn)(params, clean, noisy)
    updates, opt_state = tx.update(grads, opt_state, params)
    return optax.apply_updates(params, updates), opt_state, loss


def save(path, params):
    leaves = jax.device_get(jax.tree.leaves(params))
    np.savez(path, **{str(i): leaf for i, leaf in enumerate(leaves)})


def restore(path, like):
    with np.load(path) as f:
        leaves = [jnp.asarray(f[str(i)]) for i in range(len(f.files))]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def main():
    k_loop, k_test, k_noise = jax.random.split(jax.random.key(5), 3)
    test = signals(k_test, 500)
    noisy = test + 0.5 * jax.random.normal(k_noise, test.shape)
    evaluate = jax.jit(loss_fn)
    params, opt_state = initial, tx.init(initial)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "last.npz"
        for i, key in enumerate(jax.random.split(k_loop, STEPS), start=1):
            params, opt_state, loss = train_step(params, opt_state, key)
            if i % 50 == 0:
                save(path, params)
                print(f"step {i}: loss {float(loss):.4f} test {float(evaluate(params, test, noisy)):.4f}")
        again = restore(path, params)
    print("after restoring", float(evaluate(again, test, noisy)))


if __name__ == "__main__":
    main()
