"""Conditions under vmap."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "vmapped-cond"
X, M = "f32[16,128]", "f32[128,128]"


def refresh(x: Any, m: Any) -> Any:
    return jnp.linalg.cholesky(m + jnp.diag(jnp.abs(x))) @ x


def stay(x: Any, m: Any) -> Any:
    return x + 1.0


def move(x: Any, due: Any, m: Any) -> Any:
    y = 2 * x
    return jax.lax.cond(due, refresh, stay, y, m)


def repeated(x: Any, m: Any, i: Any) -> Any:
    due = jnp.broadcast_to(i % 50 == 0, (len(x),))
    return jax.vmap(move, in_axes=(0, 0, None))(x, due, m)


def in_loop(x: Any, m: Any, i: Any) -> Any:
    return jax.lax.fori_loop(0, i, lambda i, x: repeated(x, m, i), x)


def switched(x: Any, m: Any, i: Any) -> Any:
    which = jnp.full(len(x), i % 3)
    return jax.vmap(lambda x, k: jax.lax.switch(k, [refresh, stay, stay], x, m))(x, which)


def computed(x: Any, m: Any, i: Any) -> Any:
    return jax.vmap(lambda x, k: move(x, (k % 50 == 0) | (k < 3), m))(x, jnp.broadcast_to(i, (len(x),)))


@pytest.mark.parametrize("fn", [repeated, in_loop, switched, computed])
def test_a_condition_that_is_the_same_in_all_rows_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, M, "i32[]").one

    assert finding.title.startswith("runs all branches of lax.cond for each row")
    assert "repeated for 16 rows" in finding.seen[1]


def test_it_names_the_call_of_vmap_and_the_line_of_the_cond(ask_about: Any) -> None:
    finding = ask_about(ID, repeated, X, M, "i32[]").one

    assert finding.where == (__file__, repeated.__code__.co_firstlineno + 2)
    assert finding.seen[1].startswith(f"lax.cond is at {__file__}:{move.__code__.co_firstlineno + 2};")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, m, i: jax.vmap(move, in_axes=(0, None, None))(x, i % 50 == 0, m),
        lambda x, m, i: jax.vmap(lambda x, d: jax.lax.cond(d, jnp.sin, jnp.cos, x))(x, x[:, 0] > i),
        lambda x, m, i: jax.vmap(lambda x: jnp.where(i > 0, refresh(x, m), x))(x),
        lambda x, m, i: jax.vmap(lambda x, d: jax.lax.cond(d, jnp.sin, jnp.cos, x))(x, jnp.full(16, i > 0)),
    ],
)
def test_one_branch_and_cheap_ones_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X, M, "i32[]").outcome == "fine"


def by_row(x: Any, m: Any, i: Any) -> Any:
    return jax.vmap(lambda x: jax.lax.cond(x[0] > i, refresh, stay, x, m))(x)


def test_rows_with_conditions_of_their_own_are_an_info(ask_about: Any) -> None:
    finding = ask_about(ID, by_row, X, M, "i32[]").one

    assert (finding.severity, finding.title) == ("info", "runs all branches of lax.cond for each row")
    assert finding.where == (__file__, by_row.__code__.co_firstlineno + 1)
    assert "jax.lax.map" in finding.advice


def test_branches_that_are_about_as_dear_are_fine(ask_about: Any) -> None:
    fn = lambda x, m, i: jax.vmap(lambda x: jax.lax.cond(x[0] > i, refresh, lambda x, m: refresh(x, 2 * m), x, m))(x)  # noqa: E731

    assert ask_about(ID, fn, X, M, "i32[]").outcome == "fine"
