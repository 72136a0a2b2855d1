# answers: fine
# Items that depend on one another, are large, few, or cheap.
import jax, jax.numpy as jnp

def _embed(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w)

def _one_by_one(x, w):
    return jax.lax.map(lambda row: _embed(row, w), x).sum()

at_once = lambda x="f32[1000,32]", w="f32[32,32]": jax.vmap(lambda row: _embed(row, w))(x)
in_batches = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.map(lambda row: _embed(row, w), x, batch_size=250)
in_turn = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.scan(lambda c, row: (c + row, _embed(row + c, w)), x[0], x)[1]
few = lambda x="f32[64,32]", w="f32[32,32]": _one_by_one(x, w)
large = lambda x="f32[1000,64,256]", w="f32[256,256]": _one_by_one(x, w)
too_many_at_once = lambda x="f32[100000,32]", w="f32[32,32]": _one_by_one(x, w)
cheap = lambda x="f32[1000,32]": jax.lax.map(lambda row: jnp.sum(jnp.tanh(row)), x)
sorted_each = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.map(lambda row: jnp.sort(row) @ w, x)
chosen_each = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.map(lambda row: jax.lax.cond(row[0] > 0, lambda: row @ w, lambda: row), x)
