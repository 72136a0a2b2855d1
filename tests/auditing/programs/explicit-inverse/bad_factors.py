# Inverses in derivatives, loops, and batches, and by other functions than inv.
import jax, jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve, solve, solve_triangular

def _invert(a, b):
    inverse = jnp.linalg.inv(a)  # expect: explicit-inverse:warning
    return jnp.tanh(inverse @ b)

of_a_gradient = lambda a="f32[400,400]", b="f32[400,3]": jax.grad(lambda a: _invert(a, b).sum())(a)
of_the_other = lambda a="f32[400,400]", b="f32[400,3]": jax.value_and_grad(lambda b: _invert(a, b).sum())(b)
of_a_batch = lambda a="f32[400,400]", b="f32[400,3]": jax.vmap(_invert)(jnp.stack([a, a]), jnp.stack([b, b]))
of_a_loop = lambda a="f32[400,400]", b="f32[400,3]": jax.lax.fori_loop(0, 3, lambda _, b: _invert(a, b), b)
on_both_sides = lambda a="f32[400,400]", b="f32[400,3]": (inverse := jnp.linalg.inv(a)) @ b + inverse.T @ b  # expect: explicit-inverse:warning
by_einsum = lambda a="f32[400,400]", v="f32[400]": jnp.einsum("i,ij,j->", v, jnp.linalg.inv(a), v)  # expect: explicit-inverse:warning
by_solve = lambda a="f32[400,400]", b="f32[400,3]": solve(a, jnp.eye(400), assume_a="pos") @ b  # expect: explicit-inverse:warning
by_cholesky = lambda a="f32[400,400]", b="f32[400,3]": cho_solve(cho_factor(a), jnp.eye(400)) @ b  # expect: explicit-inverse:warning
by_a_triangle = lambda a="f32[400,400]", b="f32[400,3]": solve_triangular(a, jnp.eye(400), lower=True) @ b  # expect: explicit-inverse:warning
