# answers: fine
# Short kernels, those of networks, and the FFT.
import jax, jax.numpy as jnp

by_the_fft = lambda x="f32[32768]", k="f32[4000]": jax.scipy.signal.fftconvolve(x, k, mode="valid")
short_over_much = lambda x="f32[1048576]", k="f32[100]": jnp.convolve(x, k, mode="valid") ** 2
short_over_little = lambda x="f32[4096]", k="f32[256]": jnp.convolve(x, k, mode="valid") ** 2
of_a_network = lambda x="f32[8,64,64,64]", k="f32[128,64,3,3]": jax.lax.conv(x, k, (1, 1), "SAME")
of_patches = lambda x="f32[8,3,224,224]", k="f32[768,3,16,16]": jax.lax.conv(x, k, (16, 16), "VALID")
