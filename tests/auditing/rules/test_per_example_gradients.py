"""Gradients of each example, of which the sum is used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import IS_0_6, tells_transposed

ID = "per-example-gradients"
W, XS = jnp.ones((300, 200)), jnp.ones((64, 300))
ROWS = jnp.arange(64)


def loss(w: Any, x: Any) -> Any:
    return jnp.sum(jnp.tanh(x @ w) ** 2)


def of_each(w: Any, xs: Any) -> Any:
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0))(w, xs)
    return gradients.mean(axis=0)


def of_rows(table: Any, rows: Any) -> Any:
    looked_up = lambda table, row: jnp.sum(table[row] ** 2)  # noqa: E731
    return jax.vmap(jax.value_and_grad(looked_up), (None, 0))(table, rows)[1].sum(0)


def in_a_loop(w: Any, xs: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, w: w - 0.1 * of_each(w, xs), w)


@tells_transposed
@pytest.mark.parametrize(("fn", "given"), [(of_each, (W, XS)), (of_rows, (W, ROWS)), (in_a_loop, (W, XS))])
def test_gradients_of_each_example_that_are_added_up_are_found(ask_about: Any, fn: Any, given: Any) -> None:
    finding = ask_about(ID, fn, *given).one

    assert finding.title == "makes a gradient for each of 64 examples and uses their sum"
    assert finding.seen[-1] == "14.6 MiB of gradients together, and 234 KiB of their sums"
    assert finding.gain == "estimated: at most 14.4 MiB of memory"


@tells_transposed
def test_the_line_of_the_sum_is_named(ask_about: Any) -> None:
    assert ask_about(ID, of_each, W, XS).one.where == (__file__, of_each.__code__.co_firstlineno + 2)


@tells_transposed
def test_gradients_of_several_parameters_are_one_finding(ask_about: Any) -> None:
    def step(ws: Any, xs: Any) -> Any:
        gradients = jax.vmap(jax.grad(lambda ws, x: loss(ws[0], x) + loss(ws[1], x)), (None, 0))(ws, xs)
        return jax.tree.map(lambda g: g.mean(0), gradients)

    assert len(ask_about(ID, step, (W, 2 * W), XS).one.seen) == 3


def clipped(w: Any, xs: Any) -> Any:
    gradients = jax.vmap(jax.grad(loss), (None, 0))(w, xs)
    norms = jnp.sqrt(jnp.sum(gradients**2, axis=(1, 2)))
    return jnp.sum(gradients / jnp.maximum(norms, 1.0)[:, None, None], axis=0)


@tells_transposed
@pytest.mark.parametrize(
    "fn",
    [
        clipped,
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w[:3, :2], xs[:, :3]).mean(0),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs).mean(axis=(1, 2)),
        lambda w, xs: jax.vmap(jax.grad(loss), (None, 0))(w, xs[:4]).mean(0),
    ],
    ids=["clipped each", "given back", "small", "means of each", "few examples"],
)
def test_gradients_that_are_needed_or_small_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, W, XS).outcome == "fine"


@pytest.mark.parametrize(
    "fn",
    [lambda w, xs: jax.grad(lambda w: jax.vmap(loss, (None, 0))(w, xs).mean())(w), lambda w, xs: jnp.sum(xs @ w)],
    ids=["of the mean", "none"],
)
def test_without_a_derivative_of_each_example_it_is_not_applicable(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, W, XS).outcome == ("not checked" if IS_0_6 else "not applicable")
