"""Choices by one number of which one side is dear."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "both-sides-computed"
X, STEP = "f32[128,128]", "i32[]"


def dear(x: Any) -> Any:
    return jnp.linalg.cholesky(x @ x.T + jnp.eye(128))


def cheap(x: Any) -> Any:
    return 0.9 * x + 1.0


def each_hundredth(x: Any, i: Any) -> Any:
    return jnp.where(
        i % 100 == 0,
        dear(x),
        cheap(x),
    )


def in_a_scan(x: Any, i: Any) -> Any:
    def body(carry: Any, t: Any) -> Any:
        x, factor = carry
        factor = jnp.where(t % 25 == 0, dear(x), factor)
        return (cheap(x), factor), factor[0, 0]

    return jax.lax.scan(body, (x, x), jnp.arange(50))


def in_a_while(x: Any, i: Any) -> Any:
    return jax.lax.fori_loop(0, i, lambda t, x: jax.lax.select(jnp.mod(t, 10) != 0, cheap(x), dear(x)), x)


def at_one_step(x: Any, i: Any) -> Any:
    return jax.lax.scan(lambda x, t: (jnp.where(t == i, dear(x), cheap(x)), None), x, jnp.arange(50))[0]


def of_trees(x: Any, i: Any) -> Any:
    due = jnp.logical_and(i % 10 == 0, i > 20)
    new = {"a": dear(x), "b": x @ x}
    return jax.tree.map(lambda a, b: jnp.where(due, a, b), new, {"a": x, "b": x})


def by_a_count_that_is_given(x: Any, i: Any) -> Any:
    return jnp.where((i + 1) % i == 0, dear(x), x)


def in_rows(x: Any, i: Any) -> Any:
    return jax.vmap(lambda row: jnp.where(i % 20 == 0, row @ dear(x), row))(x)


class Model:
    def __call__(self, x: Any, i: Any) -> Any:
        return jax.value_and_grad(lambda x: jnp.sum(jnp.where(i % 100 == 0, dear(x), cheap(x))))(x)


def of_a_number(x: Any, i: Any) -> Any:
    return cheap(x), jnp.where(i % 50 == 0, jnp.mean(dear(x)), x[0, 0])


def of_two_dear_sides(x: Any, i: Any) -> Any:
    return jnp.where(x[0, 0] > 0.5, dear(x), dear(2 * x))


FOUND = [
    each_hundredth,
    in_a_scan,
    in_a_while,
    at_one_step,
    of_trees,
    by_a_count_that_is_given,
    in_rows,
    of_two_dear_sides,
    Model(),
]


@pytest.mark.parametrize("fn", FOUND, ids=lambda fn: getattr(fn, "__name__", "method"))
def test_dear_work_that_is_rarely_used_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, STEP).one

    assert finding.title.startswith("computes both sides of a where each time")
    assert "jax.lax.cond" in finding.advice


def test_it_names_the_choice_what_is_dear_and_how_often_it_is_used(ask_about: Any) -> None:
    finding = ask_about(ID, each_hundredth, X, STEP).one

    assert finding.where == (__file__, each_hundredth.__code__.co_firstlineno + 1)
    assert finding.title.endswith("; the expensive one is used once in 100 times")
    assert finding.seen[0] == f"dot_general makes f32[128,128] at {__file__}:{dear.__code__.co_firstlineno + 1}"
    assert finding.gain.startswith("estimated: ")


def test_where_the_period_is_not_known_no_gain_is_told(ask_about: Any) -> None:
    finding = ask_about(ID, by_a_count_that_is_given, X, STEP).one

    assert (finding.gain, finding.seen[-1].endswith("if they are used every second time")) == (None, True)


SILENT = {
    "a cond": lambda x, i: jax.lax.cond(i % 100 == 0, dear, cheap, x),
    "a condition of each row": lambda x, i: jax.vmap(lambda r, j: jnp.where(j % 9 == 0, r @ x @ x, r))(
        x, jnp.arange(128)
    ),
    "a mask": lambda x, i: jnp.where(x > i, dear(x), cheap(x)),
    "cheap sides": lambda x, i: jnp.where(i % 100 == 0, cheap(x), x) @ x @ x,
    "needed elsewhere too": lambda x, i: (y := dear(x), jnp.where(i % 100 == 0, y, x)),
    "needed by the condition": lambda x, i: (y := dear(x), jnp.where(jnp.isfinite(y).all(), y, x))[1],
    "used nearly always": lambda x, i: jnp.where(i % 100 != 0, dear(x), x),
    "used as chance has it": lambda x, i: jnp.where(x[0, 0] > 0.5, dear(x), x),
    "a mode that is given": lambda x, i: jnp.where(i == 1, dear(x), x),
    "a warm-up": lambda x, i: jnp.where(i < 100, dear(x), x),
    "the same in each iteration": lambda x, i: jax.lax.fori_loop(
        0, 50, lambda t, y: jnp.where(t % 10 == 0, dear(x), cheap(y)), x
    ),
    "what a function of JAX chooses": lambda x, i: jax.scipy.linalg.expm(x),
    "little beside the rest": lambda x, i: jax.lax.fori_loop(
        0, 60, lambda _, y: y @ x, jnp.where(i % 100 == 0, dear(x), x)
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SILENT)
def test_what_is_needed_or_chosen_before_is_fine(ask_about: Any, name: str) -> None:
    assert ask_about(ID, SILENT[name], X, STEP).outcome == "fine"
