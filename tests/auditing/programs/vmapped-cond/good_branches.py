# answers: fine
# One branch, cheap ones, and branches that are about as expensive.
import jax, jax.numpy as jnp

def _refresh(x, m):
    return jnp.linalg.cholesky(m + jnp.diag(jnp.abs(x))) @ x

def _move(x, due, m):
    return jax.lax.cond(due, _refresh, lambda x, m: x + 1.0, 2 * x, m)

one_branch = lambda x="f32[16,128]", m="f32[128,128]", i="i32[]": jax.vmap(_move, (0, None, None))(x, i % 50 == 0, m)
cheap_in_rows = lambda x="f32[16,128]", i="i32[]": jax.vmap(lambda x, d: jax.lax.cond(d, jnp.sin, jnp.cos, x))(x, x[:, 0] > i)
a_where = lambda x="f32[16,128]", m="f32[128,128]", i="i32[]": jax.vmap(lambda x: jnp.where(i > 0, _refresh(x, m), x))(x)
cheap = lambda x="f32[16,128]", i="i32[]": jax.vmap(lambda x, d: jax.lax.cond(d, jnp.sin, jnp.cos, x))(x, jnp.full(16, i > 0))
as_expensive = lambda x="f32[16,128]", m="f32[128,128]", i="i32[]": jax.vmap(lambda x: jax.lax.cond(x[0] > i, _refresh, lambda x, m: _refresh(x, 2 * m), x, m))(x)
