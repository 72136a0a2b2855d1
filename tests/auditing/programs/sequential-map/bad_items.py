# Small independent items, one by one.
import jax, jax.numpy as jnp

def _embed(x, w):
    return jnp.tanh(jnp.tanh(x @ w) @ w)

def _one_by_one(x, w):
    return jax.lax.map(lambda row: _embed(row, w), x).sum()  # expect: sequential-map:info

mapped = lambda x="f32[1000,32]", w="f32[32,32]": _one_by_one(x, w)
of_a_gradient = lambda x="f32[1000,32]", w="f32[32,32]": jax.grad(_one_by_one)(x, w)
with_other_work = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.map(lambda row: _embed(row, jnp.tile(w, (30, 1))[:32]), x)  # expect: sequential-map:info
by_scan = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.scan(lambda _, row: (None, _embed(row, w)), None, x)[1]  # expect: sequential-map:info
in_a_loop = lambda x="f32[1000,32]", w="f32[32,32]": jax.lax.fori_loop(0, 2, lambda _, x: jax.lax.map(lambda row: _embed(row, w), x), x)  # expect: sequential-map:info
