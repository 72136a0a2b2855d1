# answers: fine
# Both sides are needed, cheap, or used as chance has it.
import jax, jax.numpy as jnp

def _dear(x):
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(128))

def _cheap(x):
    return 0.9 * x + 1.0

a_cond = lambda x="f32[128,128]", i="i32[]": jax.lax.cond(i % 100 == 0, _dear, _cheap, x)
a_condition_of_each_row = lambda x="f32[128,128]": jax.vmap(lambda r, j: jnp.where(j % 9 == 0, r @ x @ x, r))(x, jnp.arange(128))
a_mask = lambda x="f32[128,128]", i="i32[]": jnp.where(x > i, _dear(x), _cheap(x))
cheap_sides = lambda x="f32[128,128]", i="i32[]": jnp.where(i % 100 == 0, _cheap(x), x) @ x @ x
needed_elsewhere_too = lambda x="f32[128,128]", i="i32[]": (y := _dear(x), jnp.where(i % 100 == 0, y, x))
needed_by_the_condition = lambda x="f32[128,128]": (y := _dear(x), jnp.where(jnp.isfinite(y).all(), y, x))[1]
used_nearly_always = lambda x="f32[128,128]", i="i32[]": jnp.where(i % 100 != 0, _dear(x), x)
used_as_chance_has_it = lambda x="f32[128,128]": jnp.where(x[0, 0] > 0.5, _dear(x), x)
a_mode_that_is_given = lambda x="f32[128,128]", i="i32[]": jnp.where(i == 1, _dear(x), x)
a_warm_up = lambda x="f32[128,128]", i="i32[]": jnp.where(i < 100, _dear(x), x)
the_same_in_each_iteration = lambda x="f32[128,128]": jax.lax.fori_loop(0, 50, lambda t, y: jnp.where(t % 10 == 0, _dear(x), _cheap(y)), x)
what_a_function_of_jax_chooses = lambda x="f32[128,128]": jax.scipy.linalg.expm(x)
little_beside_the_rest = lambda x="f32[128,128]", i="i32[]": jax.lax.fori_loop(0, 60, lambda _, y: y @ x, jnp.where(i % 100 == 0, _dear(x), x))
