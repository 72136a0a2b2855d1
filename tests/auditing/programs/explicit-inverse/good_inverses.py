# answers: fine
# Solves, inverses that are needed, and small ones.
import jax, jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

solved = lambda a="f32[400,400]", b="f32[400,3]": jnp.linalg.solve(a, b)
by_a_factor = lambda a="f32[400,400]", b="f32[400,3]": cho_solve(cho_factor(a), b)
returned = lambda a="f32[400,400]": jnp.linalg.inv(a)
returned_as_well = lambda a="f32[400,400]", b="f32[400,3]": ((inverse := jnp.linalg.inv(a)) @ b, inverse)
its_diagonal = lambda a="f32[400,400]", b="f32[400,3]": (inverse := jnp.linalg.inv(a)) @ b + jnp.log(jnp.diag(inverse)).sum()
for_many_rows = lambda a="f32[400,400]", x="f32[5000,400]": x @ jnp.linalg.inv(a)
small = lambda a="f32[64,64]", b="f32[64]": jnp.linalg.inv(a) @ b
times_itself = lambda a="f32[400,400]": jnp.linalg.inv(a) @ jnp.linalg.inv(a)
many_small = lambda a="f32[5000,16,16]", b="f32[5000,16]": jax.vmap(lambda a, b: jnp.linalg.inv(a) @ b)(a, b)
before_a_loop = lambda a="f32[400,400]": jax.lax.fori_loop(0, 3, lambda _, b: b - (a @ b), jnp.linalg.inv(a) @ a)
