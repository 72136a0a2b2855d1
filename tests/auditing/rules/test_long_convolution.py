"""Direct convolutions with long kernels."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "long-convolution"
STREAM, TAPS = "f32[32768]", "f32[4000]"


def filtered(x: Any, kernel: Any) -> Any:
    response = jnp.convolve(x, kernel, mode="valid")
    return response**2


def blur(image: Any, kernel: Any) -> Any:
    return jax.scipy.signal.convolve(image, kernel, mode="same", method="direct")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (filtered, (STREAM, TAPS)),
        (jax.grad(lambda x, kernel: filtered(x, kernel).sum()), (STREAM, TAPS)),
        (lambda x, kernel: jnp.correlate(x, kernel, mode="same"), (STREAM, TAPS)),
        (jax.vmap(filtered, (None, 0)), (STREAM, "f32[8,4000]")),
        (jax.vmap(filtered), ("f32[8,32768]", "f32[8,4000]")),
        (lambda x, kernels: jax.lax.map(lambda k: filtered(x, k), kernels), (STREAM, "f32[8,4000]")),
        (blur, ("f32[512,512]", "f32[65,65]")),
    ],
)
def test_a_long_kernel_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert "times the operations of the FFT" in ask_about(ID, fn, *inputs).one.title


@pytest.mark.slow
def test_it_names_the_line_and_compares_with_the_fft_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, filtered, STREAM, TAPS, ratio=0.2)

    assert answered.one.where == (__file__, filtered.__code__.co_firstlineno + 1)
    assert answered.one.seen[0].startswith("f32[1,1,4000] over f32[1,1,32768]: 230 MFLOP; the FFT takes ")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda x, kernel: jax.scipy.signal.fftconvolve(x, kernel, mode="valid"), (STREAM, TAPS)),
        (filtered, ("f32[1048576]", "f32[100]")),
        (filtered, ("f32[4096]", "f32[256]")),
        (lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), ("f32[8,64,64,64]", "f32[128,64,3,3]")),
        (lambda x, k: jax.lax.conv(x, k, (16, 16), "VALID"), ("f32[8,3,224,224]", "f32[768,3,16,16]")),
    ],
)
def test_short_kernels_and_those_of_networks_are_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"
