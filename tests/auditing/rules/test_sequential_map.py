"""Loops over small items that do not depend on each other."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "sequential-map"
X, W = "f32[1000,32]", "f32[32,32]"


def embed(x: Any, w: Any) -> Any:
    return jnp.tanh(jnp.tanh(x @ w) @ w)


def one_by_one(x: Any, w: Any) -> Any:
    rows = jax.lax.map(lambda row: embed(row, w), x)
    return rows.sum()


@pytest.mark.parametrize(
    "fn",
    [
        one_by_one,
        jax.grad(one_by_one),
        lambda x, w: jax.lax.map(lambda row: embed(row, jnp.tile(w, (30, 1))[:32]), x),
        lambda x, w: jax.lax.scan(lambda _, row: (None, embed(row, w)), None, x)[1],
        lambda x, w: jax.lax.fori_loop(0, 2, lambda _, x: jax.lax.map(lambda row: embed(row, w), x), x),
    ],
)
def test_a_loop_over_small_independent_items_is_an_info(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, W).one

    assert (finding.severity, finding.title) == ("info", "loops over 1000 small items one by one")


def test_it_names_the_line_and_what_would_be_made_at_once(ask_about: Any) -> None:
    finding = ask_about(ID, one_by_one, X, W).one

    assert finding.where == (__file__, one_by_one.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("each takes 4.74 kFLOP, most of them in 2 small products")
    assert finding.seen[1].startswith("at once, no more than 500 KiB")
    assert "about 340 µs of a call here; not measured" in finding.seen[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda x, w: jax.vmap(lambda row: embed(row, w))(x), (X, W)),
        (lambda x, w: jax.lax.map(lambda row: embed(row, w), x, batch_size=250), (X, W)),
        (lambda x, w: jax.lax.scan(lambda c, row: (c + row, embed(row + c, w)), x[0], x)[1], (X, W)),
        (one_by_one, ("f32[64,32]", W)),
        (one_by_one, ("f32[1000,64,256]", "f32[256,256]")),
        (one_by_one, ("f32[100000,32]", W)),
        (lambda x, w: jax.lax.map(lambda row: jnp.sum(jnp.tanh(row)), x), (X, W)),
        (lambda x, w: jax.lax.map(lambda row: jnp.sort(row) @ w, x), (X, W)),
        (lambda x, w: jax.lax.map(lambda row: jax.lax.cond(row[0] > 0, lambda: row @ w, lambda: row), x), (X, W)),
    ],
)
def test_what_depends_is_large_few_or_cheap_in_a_loop_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"
