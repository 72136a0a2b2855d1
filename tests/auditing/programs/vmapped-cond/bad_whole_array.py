# As in jax#8192: each step writes one element.
import jax


def _fill(x, step):
    def body(carry, _):
        x, step = carry
        x = jax.lax.cond(step < x.size, lambda x: x.at[step].set(1.0), lambda x: x, x)  # expect: vmapped-cond
        return (x, step + 1), None

    return jax.lax.scan(body, (x, step), None, length=x.size)[0]


def two(x="f32[2,2000]", step="i32[2]"):
    return jax.vmap(_fill)(x, step)
