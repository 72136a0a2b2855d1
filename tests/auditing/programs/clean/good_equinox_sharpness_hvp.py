# runs
"""Sharpness-aware look at training: equinox MLP, Hessian-vector products by jvp of grad."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree


class Probe:
    """Largest Hessian eigenvalue by power iteration."""

    def __init__(self, loss, iterations=10):
        def sharpness(flat, x, y, v):
            grad = jax.grad(loss)

            def hvp(v):
                return jax.jvp(lambda f: grad(f, x, y), (flat,), (v,))[1]

            def body(_, v):
                hv = hvp(v)
                return hv / jnp.linalg.norm(hv)

            v = jax.lax.fori_loop(0, iterations, body, v / jnp.linalg.norm(v))
            return v @ hvp(v), v

        self._run = jax.jit(sharpness)

    def __call__(self, flat, x, y, v):
        return self._run(flat, x, y, v)


def make_training(loss, tx, steps):
    @jax.jit
    def train(flat, opt_state, x, y):
        def body(carry, _):
            flat, s = carry
            value, g = jax.value_and_grad(loss)(flat, x, y)
            u, s = tx.update(g, s)
            return (optax.apply_updates(flat, u), s), value

        (flat, opt_state), values = jax.lax.scan(body, (flat, opt_state), length=steps)
        return flat, opt_state, values[-1]

    return train


def main():
    k_model, k_x, k_w, k_v = jax.random.split(jax.random.key(40), 4)
    x = jax.random.normal(k_x, (256, 10))
    y = jnp.cos(x @ jax.random.normal(k_w, (10,)))
    model = eqx.nn.MLP(10, "scalar", 32, 2, activation=jnp.tanh, key=k_model)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = ravel_pytree(params)

    def loss(flat, x, y):
        net = eqx.combine(unravel(flat), static)
        return jnp.mean((jax.vmap(net)(x) - y) ** 2)

    tx = optax.sgd(0.05)
    train, probe = make_training(loss, tx, 60), Probe(loss)
    opt_state = tx.init(flat)
    v = jax.random.normal(k_v, flat.shape)
    for epoch in range(5):
        flat, opt_state, value = train(flat, opt_state, x, y)
        top, v = probe(flat, x, y, v)
        print(f"epoch {epoch} loss {float(value):.5f} sharpness {float(top):.3f}")


if __name__ == "__main__":
    main()
