# runs
"""flax.nnx regression with an evaluation on a held-out set every 40 steps."""
import argparse

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class ResBlock(nnx.Module):
    def __init__(self, width, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.up = nnx.Linear(width, 2 * width, rngs=rngs)
        self.down = nnx.Linear(2 * width, width, rngs=rngs)

    def __call__(self, x):
        return x + self.down(nnx.gelu(self.up(self.norm(x))))


class Regressor(nnx.Module):
    def __init__(self, d, width, rngs):
        self.inp = nnx.Linear(d, width, rngs=rngs)
        self.a = ResBlock(width, rngs)
        self.b = ResBlock(width, rngs)
        self.out = nnx.Linear(width, 1, rngs=rngs)

    def __call__(self, x):
        return self.out(self.b(self.a(self.inp(x))))[:, 0]


def target(x):
    return jnp.sin(2 * x[:, 0]) * x[:, 1] + jnp.abs(x[:, 2])


def mse(model, x, y):
    return jnp.mean((model(x) - y) ** 2)


@nnx.jit
def train_step(model, optimizer, key):
    x = jax.random.normal(key, (128, 8))
    loss, grads = nnx.value_and_grad(mse)(model, x, target(x))
    optimizer.update(model, grads)
    return loss


@nnx.jit
def evaluate(model, x, y):
    return mse(model, x, y)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=120)
    args = ap.parse_args()
    k_test, key = jax.random.split(jax.random.key(3))
    x_test = jax.random.normal(k_test, (512, 8))
    y_test = target(x_test)
    model = Regressor(8, 48, nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.adam(1e-3), wrt=nnx.Param)
    for i in range(1, args.steps + 1):
        key, sub = jax.random.split(key)
        train_step(model, optimizer, sub)
        if i % 40 == 0:
            print(f"step {i} test mse {float(evaluate(model, x_test, y_test)):.4f}")


if __name__ == "__main__":
    main()
