"""Variances of which rounding leaves nothing."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "cancelling-variance"
NOISE = np.random.default_rng(0).standard_normal((4000, 3)).astype(np.float32)
FAR = (NOISE + 1e5).astype(np.float32)


def of_means(x: Any) -> Any:
    return jnp.mean(x**2, axis=0) - jnp.mean(x, axis=0) ** 2


def of_sums(x: Any) -> Any:
    n = x.shape[0]
    mean = x.sum(0) / n
    return jnp.sqrt(jnp.maximum((x * x).sum(0) / n - mean * mean, 0.0))


def of_windows(x: Any) -> Any:
    kernel = jnp.ones(60) / 60
    mean = jnp.convolve(x[:, 0], kernel, mode="valid")
    return jnp.convolve(jnp.square(x[:, 0]), kernel, mode="valid") - jnp.square(mean)


def window_sums(x: Any) -> Any:
    return jax.lax.reduce_window(x, jnp.zeros(3)[0], jax.lax.add, (60, 1), (1, 1), "VALID")


def of_reduced_windows(x: Any) -> Any:
    mean = window_sums(x) / 60
    return window_sums(x * x) / 60 - mean**2


@pytest.mark.parametrize(("fn", "line"), [(of_means, 1), (of_sums, 3), (of_windows, 3), (of_reduced_windows, 2)])
def test_a_variance_of_large_numbers_is_found_with_what_is_left(ask_about: Any, fn: Any, line: int) -> None:
    found = ask_about(ID, fn, FAR).one

    assert found.title == "the mean of squares less the square of the mean leaves no digits in float32"
    assert found.where == (__file__, fn.__code__.co_firstlineno + line)
    assert "100 % of" in found.seen[0]
    assert found.seen[1].startswith("the mean of squares is about 1e+10, which float32 has in steps of 1.2e+03;")


@pytest.mark.parametrize("fn", [of_means, of_sums, of_windows, of_reduced_windows])
def test_of_numbers_near_zero_it_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, NOISE).outcome == "fine"


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.var(x, axis=0),
        lambda x: jnp.mean((x - x.mean(0)) ** 2, axis=0),
        lambda x: x[:, 0] - x[:, 1] ** 2,  # nothing is a mean of squares
        lambda x: x[:, 0] ** 2 - x[:, 1] ** 2,
    ],
)
def test_other_differences_are_none(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, FAR).outcome == "not applicable"


def test_in_a_loop_whose_values_are_not_known_nothing_is_called_fine(ask_about: Any) -> None:
    def rows(x: Any) -> Any:
        return jax.lax.map(of_means, jnp.stack([x, x]))

    assert ask_about(ID, rows, FAR).outcome == "not checked"


def test_a_column_that_never_changes_is_no_loss(ask_about: Any) -> None:
    mixed = NOISE.copy()
    mixed[:, 0] = 7.0

    assert ask_about(ID, of_means, mixed).outcome == "fine"
