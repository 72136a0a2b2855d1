# Long kernels, applied directly.
import jax, jax.numpy as jnp

def _filter(x, kernel):
    return jnp.convolve(x, kernel, mode="valid") ** 2  # expect: long-convolution

filtered = lambda x="f32[32768]", k="f32[4000]": _filter(x, k)
of_a_gradient = lambda x="f32[32768]", k="f32[4000]": jax.grad(lambda x: _filter(x, k).sum())(x)
correlated = lambda x="f32[32768]", k="f32[4000]": jnp.correlate(x, k, mode="same")  # expect: long-convolution
with_each_kernel = lambda x="f32[32768]", k="f32[8,4000]": jax.vmap(_filter, (None, 0))(x, k)
each_with_its_own = lambda x="f32[8,32768]", k="f32[8,4000]": jax.vmap(_filter)(x, k)
in_a_loop = lambda x="f32[32768]", k="f32[8,4000]": jax.lax.map(lambda k: _filter(x, k), k)
of_an_image = lambda x="f32[512,512]", k="f32[65,65]": jax.scipy.signal.convolve(x, k, mode="same", method="direct")  # expect: long-convolution
