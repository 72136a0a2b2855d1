"""What XLA folds when it compiles a function alone, beside what `folding.py` says of it: nothing tied that is folded,
nothing left untied that is run in every call."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from benchax.clock import tying

SQUARE = np.random.default_rng(0).random((48, 48)).astype(np.float32)
DEFINITE = SQUARE @ SQUARE.T + np.eye(48, dtype=np.float32)
LINE = np.random.default_rng(1).random(1024).astype(np.float32)
PLACES = np.arange(1024) % 48
ROW, COLUMN = jnp.asarray(SQUARE[0]), SQUARE[1][:, None]

FOLDED = {
    "sine of an array": lambda: jnp.sin(LINE),
    "product of matrices": lambda: jnp.asarray(SQUARE) @ jnp.asarray(SQUARE),
    "cumulative sum": lambda: jnp.cumsum(LINE),
    "convolution": lambda: jnp.convolve(LINE, LINE[:8]),
    "gather": lambda: jnp.asarray(LINE)[PLACES],
    "scatter": lambda: jnp.zeros(48).at[PLACES].add(LINE),
    "top k": lambda: lax.top_k(LINE, 8)[0],
    "sum": lambda: jnp.asarray(LINE).sum(),
    "softmax": lambda: jax.nn.softmax(jnp.asarray(LINE)),
    "where": lambda: jnp.where(jnp.asarray(LINE) > 0.5, LINE, 0),
    "sine of ones": lambda: jnp.sin(jnp.ones((48, 48))),
    "sum of ones": lambda: jnp.ones(1024).sum(),
    "branch": lambda: lax.cond(True, jnp.sin, jnp.cos, jnp.asarray(LINE)),
    "sum of a counter": lambda: jnp.arange(1024.0).sum(),
    "counter and constant": lambda: jnp.sin(jnp.arange(1024.0) + LINE),
    "row and matrix": lambda: jnp.asarray(SQUARE) + ROW,
    "sine of a broadcast row": lambda: jnp.sin(jnp.broadcast_to(ROW, (48, 48)) * 2.0),
}
RUN = {
    "sine of a counter": lambda: jnp.sin(jnp.arange(1024.0)),
    "within a jit": lambda: jax.jit(lambda: jnp.sin(jnp.arange(8.0)))(),
    "cumulative sum of a counter": lambda: jnp.cumsum(jnp.arange(1024.0)),
    "cumulative sum of ones": lambda: jnp.cumsum(jnp.ones(1024)),
    "product of ones": lambda: jnp.ones((48, 48)) @ jnp.ones((48, 48)),
    "outer product": lambda: jnp.sin(jnp.asarray(COLUMN) * ROW[None]),
    "sort of a broadcast": lambda: jnp.sort(jnp.broadcast_to(ROW[:, None], (48, 48))),
    "fft": lambda: jnp.fft.fft(LINE),
    "cholesky": lambda: jnp.linalg.cholesky(DEFINITE),
    "qr": lambda: jnp.linalg.qr(DEFINITE)[1],
    "eigenvalues": lambda: jnp.linalg.eigh(DEFINITE)[0],
    "inverse": lambda: jnp.linalg.inv(DEFINITE),
    "singular values": lambda: jnp.linalg.svd(DEFINITE, compute_uv=False),
    "triangular solve": lambda: lax.linalg.triangular_solve(DEFINITE, SQUARE),
    "normal of a fixed key": lambda: jax.random.normal(jax.random.key(0), (1024,)),
    "split of a fixed key": lambda: jax.random.key_data(jax.random.split(jax.random.key(0), 4)),
    "rbg": lambda: jax.random.normal(jax.random.key(0, impl="rbg"), (1024,)),
    "permutation": lambda: jax.random.permutation(jax.random.key(0), 1024),
    "fori_loop": lambda: lax.fori_loop(0, 100, lambda i, a: jnp.sin(a) + 0.1, jnp.ones(16)),
    "scan": lambda: lax.scan(lambda a, x: (jnp.sin(a) + x, a), 0.0, LINE)[1],
    "vmapped while": lambda: jax.vmap(lambda n: lax.while_loop(lambda c: c < n, lambda c: c + jnp.sin(c), 1.0))(LINE),
    "interpolation": lambda: jnp.interp(LINE, jnp.linspace(0, 1, 48), ROW),
    "checkpoint": lambda: jax.grad(lambda x: jax.checkpoint(lambda y: jnp.sin(jnp.sin(y)))(x).sum())(jnp.asarray(LINE)),
}
FREE = {"constant", "parameter", "tuple", "get-tuple-element", "bitcast", "broadcast", "copy", "fusion", "iota", "call"}


def is_run(function) -> bool:
    """Whether XLA leaves anything to compute in every call."""
    text = jax.jit(function).lower().compile().as_text()
    return any(opcode not in FREE for opcode in re.findall(r"= [^=]*?([a-z][a-z\-]+)\(", text))


@pytest.mark.parametrize("name", FOLDED)
def test_what_xla_folds_is_left_to_be_folded(name: str):
    assert not is_run(FOLDED[name])

    tied, impossible = tying.tie_program(jax.make_jaxpr(FOLDED[name])())

    assert (tied, impossible) == (None, ())


@pytest.mark.parametrize("name", RUN)
def test_what_xla_runs_in_every_call_is_tied_and_computes_the_same(name: str):
    assert is_run(RUN[name])

    tied, impossible = tying.tie_program(jax.make_jaxpr(RUN[name])())

    assert impossible == ()
    (found,) = jax.core.eval_jaxpr(tied.jaxpr, tied.consts, jnp.uint32(0))
    np.testing.assert_allclose(found, RUN[name](), rtol=1e-5, atol=1e-6)


def test_the_zero_changes_no_value():
    values = jnp.asarray([-0.0, 0.0, jnp.nan, -jnp.inf, 3.0])
    for dtype in (jnp.float32, jnp.bfloat16, jnp.complex64, jnp.bool_, jnp.int8, jnp.uint32):
        array = values[1:2].astype(dtype) if dtype in (jnp.int8, jnp.uint32) else values.astype(dtype)

        tied = tying._minus_zero(array, jnp.uint32(0))

        assert tied.dtype == array.dtype
        assert np.asarray(tied).tobytes() == np.asarray(array).tobytes()


def test_what_has_no_operand_to_tie_is_named():
    def asked():
        return jax.pure_callback(lambda: np.float32(1), jax.ShapeDtypeStruct((), jnp.float32))

    assert tying.tie_program(jax.make_jaxpr(asked)()) == (None, ("pure_callback",))
