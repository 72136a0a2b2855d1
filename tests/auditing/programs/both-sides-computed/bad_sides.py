# A where computes a side that is expensive and rarely used.
import jax, jax.numpy as jnp

def _dear(x):
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(128))

def _cheap(x):
    return 0.9 * x + 1.0

def in_a_scan(x="f32[128,128]"):
    def body(carry, t):
        x, factor = carry
        factor = jnp.where(t % 25 == 0, _dear(x), factor)  # expect: both-sides-computed
        return (_cheap(x), factor), factor[0, 0]
    return jax.lax.scan(body, (x, x), jnp.arange(50))

def of_trees(x="f32[128,128]", i="i32[]"):
    due = jnp.logical_and(i % 10 == 0, i > 20)
    new = {"a": _dear(x), "b": x @ x}
    return jax.tree.map(lambda a, b: jnp.where(due, a, b), new, {"a": x, "b": x})  # expect: both-sides-computed

class _Model:
    def __call__(self, x="f32[128,128]", i="i32[]"):
        return jax.value_and_grad(lambda x: jnp.sum(jnp.where(i % 100 == 0, _dear(x), _cheap(x))))(x)  # expect: both-sides-computed

each_hundredth = lambda x="f32[128,128]", i="i32[]": jnp.where(i % 100 == 0, _dear(x), _cheap(x))  # expect: both-sides-computed
in_a_while = lambda x="f32[128,128]", i="i32[]": jax.lax.fori_loop(0, i, lambda t, x: jax.lax.select(jnp.mod(t, 10) != 0, _cheap(x), _dear(x)), x)  # expect: both-sides-computed
at_one_step = lambda x="f32[128,128]", i="i32[]": jax.lax.scan(lambda x, t: (jnp.where(t == i, _dear(x), _cheap(x)), None), x, jnp.arange(50))[0]  # expect: both-sides-computed
by_a_count_that_is_given = lambda x="f32[128,128]", i="i32[]": jnp.where((i + 1) % i == 0, _dear(x), x)  # expect: both-sides-computed
in_rows = lambda x="f32[128,128]", i="i32[]": jax.vmap(lambda row: jnp.where(i % 20 == 0, row @ _dear(x), row))(x)  # expect: both-sides-computed
of_two_dear_sides = lambda x="f32[128,128]": jnp.where(x[0, 0] > 0.5, _dear(x), _dear(2 * x))  # expect: both-sides-computed
model = _Model()
