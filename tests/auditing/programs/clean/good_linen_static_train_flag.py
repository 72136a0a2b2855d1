# runs
"""flax.linen classifier with dropout: one model, train and eval as a static flag with two values."""
import functools
import time

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn
from flax.training.train_state import TrainState


class Net(nn.Module):
    width: int = 128
    classes: int = 10

    @nn.compact
    def __call__(self, x, train):
        for _ in range(2):
            x = nn.relu(nn.LayerNorm()(nn.Dense(self.width)(x)))
            x = nn.Dropout(0.1, deterministic=not train)(x)
        return nn.Dense(self.classes)(x)


net = Net()


def make(key, n):
    k1, k2, k3 = jax.random.split(key, 3)
    y = jax.random.randint(k1, (n,), 0, 10)
    return 0.4 * jax.random.normal(k2, (10, 64))[y] + jax.random.normal(k3, (n, 64)), y


@functools.partial(jax.jit, static_argnames="train")
def forward(params, x, y, key, train):
    logits = net.apply(params, x, train, rngs={"dropout": key})
    loss = optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()
    return loss, jnp.mean(jnp.argmax(logits, -1) == y)


@jax.jit
def step(state, x, y, key):
    k_idx, k_drop = jax.random.split(jax.random.fold_in(key, state.step))
    idx = jax.random.randint(k_idx, (128,), 0, x.shape[0])

    def loss_fn(p):
        return forward(p, x[idx], y[idx], k_drop, train=True)

    (loss, acc), grads = jax.value_and_grad(loss_fn, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), loss, acc


def main():
    k_data, k_init, k_run, k_eval = jax.random.split(jax.random.key(0), 4)
    x, y = make(k_data, 4_000)
    x_val, y_val, x, y = x[:500], y[:500], x[500:], y[500:]
    params = jax.jit(functools.partial(net.init, train=False))(k_init, x[:1])
    state = TrainState.create(apply_fn=net.apply, params=params, tx=optax.adamw(1e-3))
    start = time.perf_counter()
    for i in range(1, 121):
        state, loss, acc = step(state, x, y, k_run)
        if i % 40 == 0:
            val_loss, val_acc = forward(state.params, x_val, y_val, k_eval, train=False)
            print(f"{i} train {float(loss):.3f} val {float(val_loss):.3f} acc {float(val_acc):.3f}")
    jax.block_until_ready(state)
    print(f"{time.perf_counter() - start:.1f} s")


if __name__ == "__main__":
    main()
