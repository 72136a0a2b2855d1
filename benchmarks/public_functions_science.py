"""Rows of `public_functions.py`: jax.nn and jax.scipy."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy as jsp
from public_functions import from_table

A, P = "f32[256,256]", "p:f32[128,128]"

NN = {
    "relu": (jax.nn.relu, A),
    "relu6": (jax.nn.relu6, A),
    "gelu": (jax.nn.gelu, A),
    "gelu_exact": (lambda x: jax.nn.gelu(x, approximate=False), A),
    "silu": (jax.nn.silu, A),
    "sigmoid": (jax.nn.sigmoid, A),
    "softplus": (jax.nn.softplus, A),
    "soft_sign": (jax.nn.soft_sign, A),
    "log_sigmoid": (jax.nn.log_sigmoid, A),
    "elu": (jax.nn.elu, A),
    "celu": (jax.nn.celu, A),
    "selu": (jax.nn.selu, A),
    "leaky_relu": (jax.nn.leaky_relu, A),
    "hard_tanh": (jax.nn.hard_tanh, A),
    "hard_swish": (jax.nn.hard_swish, A),
    "mish": (jax.nn.mish, A),
    "glu": (jax.nn.glu, A),
    "squareplus": (jax.nn.squareplus, A),
    "softmax": (jax.nn.softmax, A),
    "log_softmax": (jax.nn.log_softmax, A),
    "softmax_bf16": (jax.nn.softmax, "bf16[256,256]"),
    "logsumexp": (lambda x: jax.nn.logsumexp(x, -1), A),
    "standardize": (jax.nn.standardize, A),
    "one_hot": (lambda i: jax.nn.one_hot(i, 100), "i32[512]"),
    "dot_product_attention": (jax.nn.dot_product_attention, "f32[1,64,4,32]", "f32[1,64,4,32]", "f32[1,64,4,32]"),
    "attention_causal": (
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=True),
        "f32[1,64,4,32]", "f32[1,64,4,32]", "f32[1,64,4,32]",
    ),
}  # fmt: skip

SCIPY = {
    "special_gammaln": (jsp.special.gammaln, P),
    "special_digamma": (jsp.special.digamma, P),
    "special_erf": (jsp.special.erf, A),
    "special_erfinv": (jsp.special.erfinv, P),
    "special_logit": (jsp.special.logit, P),
    "special_expit": (jsp.special.expit, A),
    "special_betainc": (jsp.special.betainc, "p:f32[256]", "p:f32[256]", "p:f32[256]"),
    "special_gammainc": (jsp.special.gammainc, "p:f32[256]", "p:f32[256]"),
    "special_i0": (jsp.special.i0, P),
    "special_ndtri": (jsp.special.ndtri, P),
    "special_xlogy": (jsp.special.xlogy, P, P),
    "special_logsumexp": (lambda x: jsp.special.logsumexp(x, 0), A),
    "special_entr": (jsp.special.entr, P),
    "special_polygamma": (lambda x: jsp.special.polygamma(1, x), "p:f32[512]"),
    "stats_norm_logpdf": (jsp.stats.norm.logpdf, A),
    "stats_norm_cdf": (jsp.stats.norm.cdf, A),
    "stats_gamma_logpdf": (lambda x: jsp.stats.gamma.logpdf(x, 2.0), P),
    "stats_multivariate_normal": (
        lambda x, m, c: jsp.stats.multivariate_normal.logpdf(x, m, c),
        "f32[64,16]", "f32[16]", "spd:f32[16,16]",
    ),
    "stats_gaussian_kde": (lambda x, y: jsp.stats.gaussian_kde(x)(y), "f32[256]", "f32[64]"),
    "stats_rankdata": (jsp.stats.rankdata, "f32[1024]"),
    "linalg_cho_solve": (
        lambda a, b: jsp.linalg.cho_solve(jsp.linalg.cho_factor(a), b), "spd:f32[64,64]", "f32[64]",
    ),
    "linalg_lu": (jsp.linalg.lu, "f32[48,48]"),
    "linalg_expm": (jsp.linalg.expm, "p:f32[16,16]"),
    "linalg_solve_triangular": (
        lambda a, b: jsp.linalg.solve_triangular(a, b, lower=True), "spd:f32[96,96]", "f32[96,4]",
    ),
    "linalg_block_diag": (lambda a, b: jsp.linalg.block_diag(a, b), "f32[64,64]", "f32[64,64]"),
    "signal_convolve2d": (lambda x, k: jsp.signal.convolve2d(x, k, mode="same"), "f32[64,64]", "f32[5,5]"),
    "signal_fftconvolve": (lambda x, k: jsp.signal.fftconvolve(x, k, mode="same"), "f32[2048]", "f32[128]"),
    "signal_welch": (lambda x: jsp.signal.welch(x, nperseg=128)[1], "f32[2048]"),
    "signal_stft": (lambda x: jsp.signal.stft(x, nperseg=128)[2], "f32[2048]"),
    "signal_detrend": (jsp.signal.detrend, "f32[2048]"),
    "ndimage_map_coordinates": (
        lambda x, c: jsp.ndimage.map_coordinates(x, c, order=1), "f32[64,64]", "p:f32[2,1024]",
    ),
    "integrate_trapezoid": (jsp.integrate.trapezoid, A),
    "interpolate_regular_grid": (
        lambda v, x: jsp.interpolate.RegularGridInterpolator((jnp.linspace(0, 1, 32), jnp.linspace(0, 1, 32)), v)(x),
        "f32[32,32]", "p:f32[256,2]",
    ),
    "fft_dct": (jsp.fft.dct, "f32[64,128]"),
}  # fmt: skip

ROWS = [*from_table("jax.nn", NN), *from_table("jax.scipy", SCIPY)]
