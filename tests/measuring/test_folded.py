"""The remark `folded` over many functions: of none that does its work, and of each that does not."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchax.case import make_case
from benchax.measuring.prepare import prepare
from benchax.measuring.record import Record, quiet
from benchax.measuring.remarks import folded
from benchax.program.cost import cost

X = jnp.asarray(np.random.default_rng(0).random((64, 64)), jnp.float32)
V = jnp.asarray(np.random.default_rng(1).random(4096), jnp.float32)
IMAGE, KERNEL = X[None, None], X[:3, :3][None, None]
DEFINITE = X @ X.T + jnp.eye(64)
TABLE = np.asarray(X)

DONE = {
    "cumsum": (jnp.cumsum, V),
    "cumprod": (jnp.cumprod, V),
    "cummax": (lax.cummax, V),
    "cummin": (lax.cummin, V),
    "cumlogsumexp": (lax.cumlogsumexp, V),
    "cumsum of rows": (lambda x: jnp.cumsum(x, 1), X),
    "unique": (lambda x: jnp.unique(x, size=100), V),
    "sort": (jnp.sort, V),
    "argsort": (jnp.argsort, V),
    "median": (jnp.median, V),
    "quantile": (lambda x: jnp.quantile(x, 0.3), V),
    "top_k": (lambda x: lax.top_k(x, 5), V),
    "searchsorted": (lambda x: jnp.searchsorted(x, x[:100]), V),
    "histogram": (lambda x: jnp.histogram(x)[0], V),
    "fft": (jnp.fft.fft, V),
    "rfft": (jnp.fft.rfft, V),
    "irfft": (jnp.fft.irfft, V),
    "fft2": (jnp.fft.fft2, X),
    "cholesky": (jnp.linalg.cholesky, DEFINITE),
    "qr": (jnp.linalg.qr, X),
    "svd": (jnp.linalg.svd, X),
    "eigh": (jnp.linalg.eigh, DEFINITE),
    "inv": (jnp.linalg.inv, DEFINITE),
    "solve": (lambda a: jnp.linalg.solve(a, a), DEFINITE),
    "det": (jnp.linalg.det, X),
    "matmul": (lambda a: a @ a, X),
    "einsum": (lambda a: jnp.einsum("ij,kj->ik", a, a), X),
    "conv": (lambda x: lax.conv(x, KERNEL, (1, 1), "SAME"), IMAGE),
    "convolve": (lambda x: jnp.convolve(x, x[:32]), V),
    "max pool": (lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (8, 8), (1, 1), "SAME"), X),
    "average pool": (lambda x: lax.reduce_window(x, 0.0, lax.add, (4, 4), (4, 4), "VALID"), X),
    "scan": (lambda x: lax.scan(lambda c, r: (c + r, c.sum()), x[0], x)[1], X),
    "associative scan": (lambda x: lax.associative_scan(jnp.add, x), V),
    "softmax": (jax.nn.softmax, X),
    "gelu": (jax.nn.gelu, X),
    "logsumexp": (jax.nn.logsumexp, X),
    "tanh": (jnp.tanh, X),
    "layer norm": (lambda x: (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6), X),
    "gradient": (jax.grad(lambda x: jnp.tanh(x @ x).sum()), X),
    "gather": (lambda x: x[jnp.arange(0, 4096, 7)], V),
    "scatter": (lambda x: x.at[jnp.arange(100)].add(1.0), V),
    "one hot": (lambda x: jax.nn.one_hot((x * 9).astype(int), 10), V),
    "random": (lambda x: x + jax.random.normal(jax.random.key(0), x.shape), V),
    "where": (lambda x: jnp.where(x > 0.5, x, 0), V),
    "diff": (jnp.diff, V),
    "interp": (lambda x: jnp.interp(x, jnp.linspace(0, 1, 50), jnp.linspace(0, 1, 50) ** 2), V),
    "polyval": (lambda x: jnp.polyval(jnp.arange(5.0), x), V),
    "tril": (jnp.tril, X),
    "integers": (lambda x: (x * 99).astype(int) % 7, V),
    "bincount": (lambda x: jnp.bincount((x * 9).astype(int), length=10), V),
    "roll": (lambda x: jnp.roll(x, 3) * 2, V),
    "segment sum": (lambda x: jax.ops.segment_sum(x, (x * 9).astype(int), 10), V),
    "mean": (jnp.mean, X),
    "var": (jnp.var, X),
}
NOT_DONE = {
    "constants multiplied": lambda x: x[0, 0] + (jnp.asarray(TABLE) @ jnp.asarray(TABLE)).sum(),
    "sine of constants": lambda x: x[0, 0] + jnp.sin(jnp.tanh(TABLE) * 2 + 1).sum(),
    "results not used": lambda x: jnp.where(jnp.arange(64) < 0, x @ x, x),
    "one element of a product": lambda x: (jnp.asarray(TABLE) @ jnp.asarray(TABLE))[0, 0] * x[0, 0],
    "constants sorted": lambda x: x[:2, :2] + jnp.sort(jnp.asarray(TABLE))[:2, :2],
    "constants summed up": lambda x: x[0, 0] + jnp.cumsum(TABLE.ravel())[-1],
    "inputs ignored": lambda x: jnp.asarray(TABLE) @ jnp.asarray(TABLE),
}


def evidence_of(function, *args):
    prepared = prepare(make_case(jax.jit(function), args))
    return Record(quiet, cost=cost(prepared.built.compiled, prepared.hlo)), prepared, prepared.subject, True


@pytest.mark.parametrize("name", DONE)
def test_a_function_that_does_its_work_is_not_called_folded(name: str, monkeypatch: pytest.MonkeyPatch):
    evidence = evidence_of(*DONE[name])

    assert folded(*evidence) is None
    # Nor by our own count alone, whatever XLA's says.
    monkeypatch.setattr("benchax.measuring.remarks.lowered_flops", lambda lowered: 1e15)
    assert folded(*evidence) is None


@pytest.mark.parametrize("name", NOT_DONE)
def test_work_that_is_left_out_is_said(name: str):
    remark = folded(*evidence_of(NOT_DONE[name], X))

    assert remark is not None
    assert "written" in remark.message or "does not depend on its inputs" in remark.message


def test_what_was_written_and_what_is_left_are_counted_alike():
    remark = folded(*evidence_of(NOT_DONE["results not used"], X))

    assert remark is not None
    assert remark.message == (
        "of 528 kFLOP written, 0 FLOP are left in the compiled program: the rest was computed when it was compiled, "
        "or its results are not used"
    )
