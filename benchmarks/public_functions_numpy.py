"""Rows of `public_functions.py`: jax.numpy."""

from __future__ import annotations

import jax.numpy as jnp
from public_functions import from_table

A, P, V, S = "f32[256,256]", "p:f32[256,256]", "f32[16384]", "f32[64,64]"

ELEMENTWISE = {
    "add": (jnp.add, A, A),
    "multiply": (jnp.multiply, "f32[512,512]", "f32[512,512]"),
    "divide": (jnp.divide, A, P),
    "power": (jnp.power, P, P),
    "exp": (jnp.exp, A),
    "expm1": (jnp.expm1, A),
    "log": (jnp.log, P),
    "log1p": (jnp.log1p, P),
    "sin": (jnp.sin, A),
    "cos": (jnp.cos, A),
    "tan": (jnp.tan, A),
    "arctan2": (jnp.arctan2, A, A),
    "arcsin": (jnp.arcsin, P),
    "sinh": (jnp.sinh, A),
    "tanh": (jnp.tanh, A),
    "sqrt": (jnp.sqrt, P),
    "cbrt": (jnp.cbrt, A),
    "hypot": (jnp.hypot, A, A),
    "logaddexp": (jnp.logaddexp, A, A),
    "floor_divide": (jnp.floor_divide, S, S),
    "mod": (jnp.mod, "i32[256,256]", "i32[256,256]"),
    "where": (jnp.where, "bool[256,256]", A, A),
    "clip": (lambda x: jnp.clip(x, -0.5, 0.5), A),
    "maximum_bf16": (jnp.maximum, "bf16[256,256]", "bf16[256,256]"),
    "sinc": (jnp.sinc, A),
    "nan_to_num": (jnp.nan_to_num, A),
    "round": (lambda x: jnp.round(x, 2), A),
    "bitwise_xor": (jnp.bitwise_xor, "i32[256,256]", "i32[256,256]"),
    "isclose": (jnp.isclose, A, A),
    "abs_complex": (jnp.abs, "c64[128,128]"),
}

REDUCTIONS = {
    "sum": (jnp.sum, "f32[512,512]"),
    "sum_axis0": (lambda x: jnp.sum(x, 0), "f32[512,512]"),
    "prod": (lambda x: jnp.prod(x, -1), P),
    "mean": (lambda x: jnp.mean(x, -1), A),
    "var": (lambda x: jnp.var(x, -1), A),
    "std": (jnp.std, A),
    "max": (lambda x: jnp.max(x, 0), A),
    "argmax": (lambda x: jnp.argmax(x, -1), A),
    "any": (lambda x: jnp.any(x > 5, -1), A),
    "median": (lambda x: jnp.median(x, -1), "f32[32,32]"),
    "quantile": (lambda x: jnp.quantile(x, 0.3), "f32[4096]"),
    "nanmean": (lambda x: jnp.nanmean(x, 0), A),
    "ptp": (lambda x: jnp.ptp(x, 0), A),
    "average": (lambda x, w: jnp.average(x, 0, w), A, "p:f32[256]"),
    "cumsum": (lambda x: jnp.cumsum(x, -1), A),
    "cumprod": (lambda x: jnp.cumprod(x, 0), "p:f32[64,64]"),
    "diff": (jnp.diff, A),
    "gradient": (lambda x: jnp.gradient(x, axis=0), A),
    "trapezoid": (jnp.trapezoid, A),
    "cov": (jnp.cov, S),
    "corrcoef": (jnp.corrcoef, S),
    "count_nonzero": (jnp.count_nonzero, "bool[256,256]"),
}

SORTING = {
    "sort": (jnp.sort, "f32[64,128]"),
    "argsort": (jnp.argsort, "f32[4096]"),
    "lexsort": (lambda a, b: jnp.lexsort((a, b)), "i32[2048]", "i32[2048]"),
    "partition": (lambda x: jnp.partition(x, 8), "f32[32,128]"),
    "searchsorted": (jnp.searchsorted, "sorted:f32[4096]", "f32[1024]"),
    "digitize": (jnp.digitize, "f32[1024]", "sorted:f32[64]"),
    "unique": (lambda x: jnp.unique(x, size=100), "i32[2048]"),
    "union1d": (lambda x, y: jnp.union1d(x, y, size=100), "i32[512]", "i32[512]"),
    "setdiff1d": (lambda x, y: jnp.setdiff1d(x, y, size=100), "i32[512]", "i32[64]"),
    "isin": (jnp.isin, "i32[2048]", "i32[32]"),
    "histogram": (lambda x: jnp.histogram(x, 32)[0], "f32[4096]"),
    "bincount": (lambda x: jnp.bincount(x, length=100), "i32[8192]"),
    "nonzero": (lambda x: jnp.nonzero(x, size=4096), "bool[4096]"),
}

INDEXING = {
    "take": (lambda x, i: jnp.take(x, i, axis=0), "f32[1024,64]", "i32[512]"),
    "take_along_axis": (lambda x, i: jnp.take_along_axis(x, i, 1), "f32[128,100]", "i32[128,16]"),
    "fancy_indexing": (lambda x, i, j: x[i, j], A, "i32[4096]", "i32[4096]"),
    "at_set": (lambda x, i, y: x.at[i].set(y), A, "i32[64]", "f32[64,256]"),
    "at_add": (lambda x, i, y: x.at[i].add(y), A, "i32[64]", "f32[64,256]"),
    "roll": (lambda x: jnp.roll(x, 7, 1), A),
    "flip": (lambda x: jnp.flip(x, 0), A),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), A, A),
    "stack": (lambda x, y: jnp.stack([x, y], -1), A, A),
    "tile": (lambda x: jnp.tile(x, (4, 4)), S),
    "repeat": (lambda x: jnp.repeat(x, 3, 1), A),
    "pad": (lambda x: jnp.pad(x, 4, mode="reflect"), A),
    "transpose": (jnp.transpose, "f32[512,512]"),
    "tril": (jnp.tril, A),
    "select": (lambda x: jnp.select([x < -1, x > 1], [x * 2, x / 2], 0), A),
    "meshgrid": (lambda x, y: jnp.meshgrid(x, y), "f32[256]", "f32[256]"),
}

LINEAR_ALGEBRA = {
    "matmul": (jnp.matmul, A, A),
    "matmul_bf16": (jnp.matmul, "bf16[128,128]", "bf16[128,128]"),
    "dot_vector": (jnp.dot, V, V),
    "outer": (jnp.outer, "f32[256]", "f32[256]"),
    "einsum_attention": (lambda q, k: jnp.einsum("bqhd,bkhd->bhqk", q, k), "f32[2,64,4,32]", "f32[2,64,4,32]"),
    "tensordot": (lambda x, y: jnp.tensordot(x, y, 2), "f32[32,16,16]", "f32[16,16,32]"),
    "kron": (jnp.kron, "f32[16,16]", "f32[16,16]"),
    "cross": (jnp.cross, "f32[1024,3]", "f32[1024,3]"),
    "linalg_solve": (jnp.linalg.solve, "spd:f32[64,64]", "f32[64,8]"),
    "linalg_inv": (jnp.linalg.inv, "spd:f32[24,24]"),
    "linalg_cholesky": (jnp.linalg.cholesky, "spd:f32[96,96]"),
    "linalg_qr": (jnp.linalg.qr, "f32[64,32]"),
    "linalg_svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), "f32[32,24]"),
    "linalg_eigh": (jnp.linalg.eigh, "spd:f32[32,32]"),
    "linalg_det": (jnp.linalg.det, "f32[16,16,16]"),
    "linalg_norm": (lambda x: jnp.linalg.norm(x, axis=-1), A),
    "linalg_lstsq": (lambda x, y: jnp.linalg.lstsq(x, y)[0], "f32[48,16]", "f32[48]"),
    "linalg_matrix_power": (lambda x: jnp.linalg.matrix_power(x, 5), S),
    "vander": (lambda x: jnp.vander(x, 8), "f32[1024]"),
}

SIGNALS = {
    "fft": (jnp.fft.fft, "c64[64,256]"),
    "rfft": (jnp.fft.rfft, V),
    "irfft": (jnp.fft.irfft, "c64[4097]"),
    "fft2": (jnp.fft.fft2, "c64[64,64]"),
    "fftshift": (jnp.fft.fftshift, A),
    "convolve": (lambda x, k: jnp.convolve(x, k, "same"), "f32[2048]", "f32[31]"),
    "correlate": (jnp.correlate, "f32[1024]", "f32[16]"),
    "interp": (jnp.interp, "f32[2048]", "sorted:f32[128]", "f32[128]"),
    "polyval": (jnp.polyval, "f32[8]", V),
    "polyfit": (lambda x, y: jnp.polyfit(x, y, 3), "f32[256]", "f32[256]"),
    "unwrap": (jnp.unwrap, "f32[4096]"),
    "apply_along_axis": (lambda x: jnp.apply_along_axis(lambda v: v / (1 + v @ v), 1, x), S),
    "vectorize": (jnp.vectorize(lambda x, y: x @ y, signature="(n),(n)->()"), A, A),
    "packbits": (jnp.packbits, "bool[65536]"),
}

ROWS = from_table("jax.numpy", {**ELEMENTWISE, **REDUCTIONS, **SORTING, **INDEXING, **LINEAR_ALGEBRA, **SIGNALS})
