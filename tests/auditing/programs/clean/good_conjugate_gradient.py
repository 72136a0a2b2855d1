# runs
"""Poisson inverse problem: matrix-free CG in a while_loop inside Gauss-Newton."""
import time
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax


@dataclass(frozen=True)
class Problem:
    n: int = 128
    rounds: int = 10
    tol: float = 1e-4
    max_cg: int = 400
    weight: float = 0.05


def blur(u):
    for axis in (0, 1):  # two passes, unrolled on purpose
        u = 0.25 * jnp.roll(u, 1, axis) + 0.5 * u + 0.25 * jnp.roll(u, -1, axis)
    return u


def forward(u):
    return blur(jnp.exp(u))


def objective_grad(u, data, weight):
    def objective(v):
        rate = forward(v)
        rough = jnp.sum((v - jnp.roll(v, 1, 0)) ** 2) + jnp.sum((v - jnp.roll(v, 1, 1)) ** 2)
        return 0.5 * jnp.sum((rate - data) ** 2) + weight * rough

    return jax.value_and_grad(objective)(u)


def gauss_newton_operator(u, weight):
    _, push = jax.linearize(forward, u)
    pull = jax.linear_transpose(push, u)

    def product(v):
        rough = sum(2 * v - jnp.roll(v, 1, a) - jnp.roll(v, -1, a) for a in (0, 1))
        return pull(push(v))[0] + 2.0 * weight * rough + 1e-3 * v

    return product


def cg(product, b, tol, max_iter):
    def cond(s):
        return (s[3] > tol**2 * jnp.vdot(b, b)) & (s[4] < max_iter)

    def body(s):
        x, r, p, before, count = s
        ap = product(p)
        alpha = before / jnp.vdot(p, ap)
        x, r = x + alpha * p, r - alpha * ap
        rr = jnp.vdot(r, r)
        return x, r, r + rr / before * p, rr, count + 1

    x, _, _, _, count = lax.while_loop(cond, body, (jnp.zeros_like(b), b, b, jnp.vdot(b, b), jnp.int32(0)))
    return x, count


@partial(jax.jit, static_argnums=2)
def newton_round(u, data, prob):
    value, g = objective_grad(u, data, prob.weight)
    delta, count = cg(gauss_newton_operator(u, prob.weight), -g, prob.tol, prob.max_cg)
    return u + 0.8 * delta, value, count


def main():
    prob = Problem()
    k_truth, k_noise = jax.random.split(jax.random.key(0))
    truth = blur(blur(blur(jax.random.normal(k_truth, (prob.n, prob.n)))))
    data = forward(truth) + 0.02 * jax.random.normal(k_noise, truth.shape)
    u = jnp.zeros_like(truth)
    log = []
    start = time.perf_counter()
    for _ in range(prob.rounds):
        u, value, count = newton_round(u, data, prob)
        log.append((value, count))
    jax.block_until_ready(u)
    elapsed = time.perf_counter() - start
    for i, (value, count) in enumerate(jax.device_get(log)):
        print(f"round {i}: objective {value:.4f}, {count} CG iterations")
    print(f"{elapsed:.2f} s including the compilation")


if __name__ == "__main__":
    main()
