"""Work on arguments that are the same at each call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.scipy.linalg import solve_triangular

ID = "fixed-work"
GRAM, F, DATA = "f32[512,512]", "f32[512]", "f32[2048,256]"


def whiten(gram: Any, f: Any) -> Any:
    root = jnp.linalg.cholesky(gram)
    return solve_triangular(root, f, lower=True)


def whiten_in_loop(gram: Any, f: Any) -> Any:
    return jax.lax.scan(lambda f, _: (whiten(gram, f), None), f, None, length=3)[0]


def until_small(gram: Any, f: Any) -> Any:
    return jax.lax.while_loop(lambda f: jnp.sum(f) > 1, lambda f: 0.5 * f, whiten(gram, f))


def fit(data: Any, w: Any) -> Any:
    return jnp.linalg.solve(data.T @ data, w)


def asked(ask_about: Any, fn: Any, *inputs: Any, fixed: Any) -> Any:
    return ask_about(ID, fn, *inputs, parts={"repeated_inputs": frozenset(fixed)})


@pytest.mark.parametrize(
    ("fn", "inputs", "name"),
    [
        (whiten, (GRAM, F), "cholesky"),
        (whiten_in_loop, (GRAM, F), "cholesky"),
        (until_small, (GRAM, F), "cholesky"),
        (fit, (DATA, "f32[256]"), "dot_general"),
        (lambda gram, f: jax.grad(lambda f: jnp.sum(whiten(gram, f) ** 2))(f), (GRAM, F), "cholesky"),
        (lambda signal, w: jnp.fft.rfft(signal).real[:4] * w, ("f32[1048576]", "f32[]"), "fft"),
        (lambda x, w: jnp.sort(x)[:4] * w, ("f32[1048576]", "f32[]"), "sort"),
    ],
)
def test_dear_work_on_what_never_changes_is_found(ask_about: Any, fn: Any, inputs: Any, name: str) -> None:
    finding = asked(ask_about, fn, *inputs, fixed=[0]).one

    assert finding.title == f"computes {name} in each call from what never changes"


def test_it_names_the_line_the_argument_and_the_share(ask_about: Any) -> None:
    finding = asked(ask_about, whiten, GRAM, F, fixed=[0]).one

    assert finding.where == (__file__, whiten.__code__.co_firstlineno + 1)
    assert "instead of gram or in addition" in finding.advice
    assert finding.seen[-1].endswith("three or more: gram f32[512,512]")
    assert "operations of a call, counted from the shapes" in finding.seen[-2]


def test_a_loop_of_unknown_length_is_said_to_be_counted(ask_about: Any) -> None:
    assert "a loop of unknown length as 100" in asked(ask_about, until_small, GRAM, F, fixed=[0]).one.seen[-2]


@pytest.mark.parametrize(
    ("fn", "inputs", "fixed"),
    [
        (whiten, (GRAM, F), [1]),
        (lambda gram, f: gram @ f, (GRAM, F), [0]),
        (lambda gram, f: jnp.exp(gram).sum() * f, (GRAM, F), [0]),
        (lambda gram, f: whiten(gram[:64, :64], f[:64]), (GRAM, F), [0]),
        (lambda gram, f: whiten(gram + jnp.outer(f, f), f), (GRAM, F), [0]),
        (lambda data, w: jnp.tanh(data @ w)[:, :256] @ (data.T @ data), (DATA, "f32[256,8192]"), [0]),
        (lambda data, w: jax.hessian(lambda w: jnp.sum(jnp.tanh(data @ w) ** 2))(w), (DATA, "f32[256]"), [0]),
        (lambda gram, x: jax.lax.fori_loop(0, 99, lambda _, x: x @ x, x) + whiten(gram, x[0]), (GRAM, GRAM), [0]),
    ],
)
def test_what_varies_or_is_a_small_part_is_fine(ask_about: Any, fn: Any, inputs: Any, fixed: Any) -> None:
    assert asked(ask_about, fn, *inputs, fixed=fixed).outcome == "fine"


@pytest.mark.parametrize("fixed", [[], [0, 1]])
def test_where_nothing_or_all_stays_the_same_it_has_nothing_to_say(ask_about: Any, fixed: Any) -> None:
    assert asked(ask_about, whiten, GRAM, F, fixed=fixed).outcome == "not applicable"
