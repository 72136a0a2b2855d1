"""Gradients of jnp.where that are NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "where-gradient"
N = "f32[8]"


def root(x: Any) -> Any:
    y = jnp.where(x > 0, jnp.sqrt(x), 0.0)
    return y.sum()


def safe_root(x: Any) -> Any:
    return jnp.where(x > 0, jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0).sum()


def norm(x: Any) -> Any:
    square = ((x[:, None] - x[None]) ** 2).sum(-1)
    return jnp.where(square > 0, jnp.sqrt(square), 0.0).sum()


def entropy(x: Any) -> Any:
    p = jax.nn.relu(x)
    return -jnp.where(p > 0, p * jnp.log(p), 0.0).sum()


def ratio(x: Any) -> Any:
    return jnp.where(x == 0, 1.0, jnp.sin(x) / x).sum()


def sheath(x: Any) -> Any:
    grown = jnp.sqrt(1.0 - 0.35 * x)
    return jnp.where(x < 0, grown, 1.0).sum()


def selected(x: Any) -> Any:
    return jnp.select([x < -1, x > 0], [x, jnp.sqrt(x)], default=0.0).sum()


def in_pieces(x: Any) -> Any:
    return jnp.piecewise(x, [x < -1, x > 0], [1.0, jnp.log, 0.0]).sum()


@pytest.mark.parametrize(
    ("fn", "spec"), [(root, N), (norm, "f32[8,3]"), (entropy, N), (ratio, N), (selected, N), (sheath, N)]
)
def test_a_gradient_that_is_nan_where_the_value_is_not_used_is_found(ask_about: Any, fn: Any, spec: str) -> None:
    finding = ask_about(ID, jax.grad(fn), spec).one

    assert finding.where[1] - fn.__code__.co_firstlineno in (1, 2)
    assert "and the gradient NaN (computed here)" in " ".join(finding.seen)


@pytest.mark.parametrize(
    "fn",
    [
        safe_root,
        lambda x: jnp.select([x < -1, x > 0], [x, jnp.sqrt(jnp.abs(x) + 1)], default=0.0).sum(),
        in_pieces,  # gives each function only what is its own
        lambda x: jnp.where(x > 0, jnp.sin(x), x / 2).sum(),
        lambda x: (jax.nn.gelu(x) + jax.nn.softplus(x) + jax.nn.elu(x) + jax.nn.log_sigmoid(x) + jnp.sinc(x)).sum(),
        lambda x: jax.nn.logsumexp(x) + jnp.std(x) + jnp.logaddexp(x, 2 * x).sum() + jax.nn.log_softmax(x)[0],
        lambda x: jnp.where(jnp.arange(8) > 3, jnp.sqrt(x), 0.0).sum(),
    ],
)
def test_what_is_finite_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, jax.jit(jax.grad(fn)), N).outcome == "fine"


def test_the_root_of_data_that_no_gradient_goes_through_is_fine(ask_about: Any) -> None:
    """The derivative of a norm is NaN at 0, but nobody takes it."""

    def cut_off(w: Any, points: Any) -> Any:
        r = jnp.linalg.norm(points, axis=-1)
        inside = jnp.where(r < 1, 1 - w * r, 1.0)
        return jnp.where(r < 1, jnp.exp(inside), 0.0).sum()

    assert ask_about(ID, jax.grad(cut_off), "f32[]", "f32[8,3]").outcome == "fine"
    assert ask_about(ID, jax.grad(cut_off, argnums=1), "f32[]", "f32[8,3]").outcome == "finding"


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


def test_inputs_that_are_alike_are_no_reason(ask_about: Any) -> None:
    """Rates that are equal divide by 0, and they are not what `jnp.where` is about."""

    def bateman(rates: Any, t: Any) -> Any:
        taken, lost = rates
        lag = jnp.where(t > 0, t, 0.0)
        return jnp.where(t > 0, taken / (taken - lost) * (jnp.exp(-lost * lag) - jnp.exp(-taken * lag)), 0.0).sum()

    assert ask_about(ID, jax.grad(bateman), ("f32[]", "f32[]"), "f32[8]").outcome == "fine"
