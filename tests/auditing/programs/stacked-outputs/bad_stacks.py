# Of what a scan stacks, little is used.
from functools import partial
import jax, jax.numpy as jnp

def _advance(x, _):
    y = 0.9 * x + 1.0
    return y, y

def _stack(x):
    return jax.lax.scan(_advance, x, None, length=200)  # expect: stacked-outputs:warning

def _gradients(x, w):
    loss = lambda w, row: jnp.sum(jnp.tanh(w * row))
    _, stacked = jax.lax.scan(lambda c, row: (c, jax.grad(loss)(w, row)), 0.0, jnp.concatenate([x, x, x]))  # expect: stacked-outputs:warning
    return w - stacked.mean(0)

class _Model:
    def __call__(self, x="f32[64,512]"):
        return partial(jnp.linalg.norm, axis=(1, 2))(jax.jit(_stack)(x)[1])

last = lambda x="f32[64,512]": _stack(x)[1][-1]
every_tenth = lambda x="f32[64,512]": _stack(x)[1][::10]
chosen = lambda x="f32[64,512]", w="f32[64,512]": jnp.take(_stack(x)[1], w[0, 0].astype(int), axis=0)
each_reduced = lambda x="f32[64,512]": jax.vmap(lambda u: u.mean(axis=0))(_stack(x)[1])
each_compared = lambda x="f32[64,512]", w="f32[64,512]": jnp.sqrt(((_stack(x)[1] - w) ** 2).reshape(200, -1).sum(1))
of_one_column = lambda x="f32[64,512]": _stack(x)[1].transpose(1, 2, 0)[3, 4]
averaged = lambda x="f32[64,512]": _stack(x)[1].mean(0)
gradients_averaged = lambda x="f32[64,512]", w="f32[64,512]": _gradients(x, w)
in_a_loop = lambda x="f32[64,512]": jax.lax.fori_loop(0, 3, lambda _, x: _stack(x)[1][-1], x)
in_rows = lambda x="f32[64,512]": jax.vmap(lambda x: _stack(x)[1][-1])(x)
of_map = lambda x="f32[64,512]": jax.lax.map(lambda i: jnp.sin(i * x), jnp.arange(200)).max(axis=(1, 2))  # expect: stacked-outputs:warning
model = _Model()
