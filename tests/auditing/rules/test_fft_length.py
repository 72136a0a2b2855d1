"""Fourier transforms of awkward lengths."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "fft-length"


def filtered(x: Any, h: Any) -> Any:
    n = x.shape[-1]
    spectrum = jnp.fft.rfft(x) * jnp.fft.rfft(h)
    return jnp.fft.irfft(spectrum, n=n)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (filtered, ("f32[32,1009]", "f32[1009]")),
        (jax.vmap(filtered), ("f32[32,2018]", "f32[32,2018]")),
        (lambda x: jnp.fft.fft2(x), ("c64[509,512]",)),
        (lambda x: jax.lax.scan(lambda c, r: (c + jnp.fft.fft(r), None), x[0], x)[0], ("c64[8,20011]",)),
        (lambda x, h: jax.scipy.signal.fftconvolve(x, h), ("f32[20000]", "f32[12]")),
    ],
)
def test_a_length_with_a_large_prime_factor_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).findings


def test_the_line_the_factor_and_the_next_good_length_are_told(ask_about: Any) -> None:
    first = ask_about(ID, filtered, "f32[32,2018]", "f32[2018]", ratio=0.3).findings[0]

    assert first.title == "transforms a length of 2018, which has the prime factor 1009"
    assert first.seen[0] == "f32[32,2018] by RFFT; the next length without prime factors above 7 is 2025"
    assert first.where == (__file__, filtered.__code__.co_firstlineno + 2)
    assert "n=2025" in first.advice
    assert first.gain.startswith("measured: ")


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (filtered, ("f32[32,1000]", "f32[1000]")),
        (filtered, ("f32[4,1009]", "f32[1009]")),
        (lambda x, w: (x @ w)[:8, :1009] + jnp.fft.fft(x[:8, :1009]).real, ("f32[2000,2000]", "f32[2000,2000]")),
    ],
    ids=["good", "few", "beside much else"],
)
def test_good_lengths_and_what_takes_little_time_are_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"


def test_without_a_transform_it_is_not_applicable(ask_about: Any) -> None:
    assert ask_about(ID, jnp.sin, "f32[8]").outcome == "not applicable"
