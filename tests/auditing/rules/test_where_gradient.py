"""Gradients of jnp.where that are NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

ID = "where-gradient"
N = "f32[8]"


def root(x: Any) -> Any:
    y = jnp.where(x > 0, jnp.sqrt(x), 0.0)
    return y.sum()


def test_without_a_gradient_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about(ID, root, N).why == "no gradient is taken in it"


def well(x: Any) -> Any:
    r = jnp.sqrt(x)
    energy = (1 - jnp.exp(-r)) ** 2
    return jnp.where(x > 0, energy, 0.0).sum()


def test_the_first_operation_without_a_derivative_is_named_and_its_line(ask_about: Any) -> None:
    finding = ask_about(ID, jax.grad(well), N).one

    line = well.__code__.co_firstlineno
    assert finding.title == "the gradient is NaN where jnp.where leaves out sqrt"
    assert finding.where == (__file__, line + 1)
    assert finding.seen[0] == f"jnp.where is at {__file__}:{line + 3}"
