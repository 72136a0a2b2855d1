# runs
"""Image-like classification with flax.linen: train in epochs by lax.scan, evaluate per epoch."""
import argparse

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state

CLASSES = 10


class Mixer(nn.Module):
    width: int
    blocks: int = 1

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(self.width)(x)
        for _ in range(self.blocks):
            h = nn.gelu(nn.Dense(self.width)(nn.LayerNorm()(x)))
            x = x + nn.Dense(self.width)(h)
        return nn.Dense(CLASSES)(x.mean(1))


def make_data(key, n):
    k_label, k_noise = jax.random.split(key)
    labels = jax.random.randint(k_label, (n,), 0, CLASSES)
    t = jnp.linspace(0.0, 1.0, 16 * 12).reshape(16, 12)
    waves = jnp.sin((1.0 + labels[:, None, None]) * 3.0 * t)
    return waves + 0.8 * jax.random.normal(k_noise, waves.shape), labels


def loss_fn(params, apply_fn, x, y):
    logits = apply_fn({"params": params}, x)
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


def make_epoch(batch, steps):
    @jax.jit
    def epoch(state, key, xs, ys):
        order = jax.random.permutation(key, xs.shape[0])[: batch * steps].reshape(steps, batch)

        def body(state, idx):
            loss, grads = jax.value_and_grad(loss_fn)(state.params, state.apply_fn, xs[idx], ys[idx])
            return state.apply_gradients(grads=grads), loss

        state, losses = jax.lax.scan(body, state, order)
        return state, losses.mean()

    return epoch


@jax.jit
def evaluate(state, xs, ys):
    logits = state.apply_fn({"params": state.params}, xs)
    return jnp.mean(jnp.argmax(logits, -1) == ys)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--n", type=int, default=2240)
    args = p.parse_args()
    k_train, k_test, k_init, k_loop = jax.random.split(jax.random.key(0), 4)
    xs, ys = make_data(k_train, args.n)
    test_x, test_y = make_data(k_test, 500)
    model = Mixer(width=48)
    params = model.init(k_init, xs[:1])["params"]
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optax.adam(1e-3))
    epoch = make_epoch(args.batch, args.n // args.batch)
    for e, key in enumerate(jax.random.split(k_loop, args.epochs)):
        state, loss = epoch(state, key, xs, ys)
        acc = evaluate(state, test_x, test_y)
        print(f"epoch {e}: loss {float(loss):.4f} test accuracy {float(acc):.3f}")


if __name__ == "__main__":
    main()
