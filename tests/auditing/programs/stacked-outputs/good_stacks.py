# answers: fine
import jax, jax.numpy as jnp

def _stack(x):
    return jax.lax.scan(lambda x, _: (0.9 * x + 1.0, 0.9 * x + 1.0), x, None, length=200)

def _in_a_gradient(x, w):
    return jax.grad(lambda x: jnp.mean((_stack(x)[1] - w) ** 2))(x)

returned = lambda x="f32[64,512]": _stack(x)[1]
returned_as_well = lambda x="f32[64,512]": (ys := _stack(x)[1], ys[-1])
half_of_it = lambda x="f32[64,512]": _stack(x)[1][::2]
of_several_rows = lambda x="f32[64,512]": jnp.diff(_stack(x)[1], axis=0).max((1, 2))
chosen_by_the_results = lambda x="f32[64,512]": (ys := _stack(x)[1])[jnp.argmin(ys.sum((1, 2)))]
beside_the_last_state = lambda x="f32[64,512]": (lambda c, ys: ((ys - c) ** 2).sum((1, 2)))(*_stack(x))
a_spread_over_steps = lambda x="f32[64,512]": _stack(x)[1].std(0)
products_of_many_rows_at_once = lambda x="f32[64,512]", w="f32[64,512]": _stack(x)[1] @ w[0]
a_quantile = lambda x="f32[64,512]": jnp.quantile(_stack(x)[1], 0.5)
unread = lambda x="f32[64,512]": _stack(x)[0]
small = lambda x="f32[64,512]": _stack(x[:4])[1][-1]
read_by_a_gradient = lambda x="f32[64,512]", w="f32[64,512]": _in_a_gradient(x, w)
losses = lambda x="f32[64,512]": jax.lax.scan(lambda c, _: (c + 1.0, c.mean()), x, None, length=200)[1][-1]
small_beside_the_arguments = lambda x="f32[64,512]", big="f32[512,64,512]": _stack(x)[1][-1] + big[0]
