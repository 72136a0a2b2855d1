"""Where NaN comes from."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "nan-results"
X = np.array([1.0, -2.0, 0.0, 3.0], np.float32)
POINTS = np.zeros((3, 2), np.float32)


class Energy:
    def __call__(self, points: Any) -> Any:
        apart = points[:, None] - points[None]
        r = jnp.linalg.norm(apart, axis=-1)
        return jnp.where(jnp.eye(3, dtype=bool), 0.0, jnp.exp(-r)).sum()


def summed(fn: Any) -> Any:
    return jax.grad(lambda x: fn(x).sum())


def in_a_loop(x: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (jnp.log(carry - 1), None), x, length=3)[0]


def in_a_branch(x: Any) -> Any:
    return jax.lax.cond(x[0] > 0, jnp.sqrt, jnp.abs, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "title"),
    [
        (lambda x: jnp.sqrt(x), "NaN comes of sqrt"),
        (lambda x: jnp.abs(x) * jnp.log(jnp.abs(x)), "NaN comes of log"),
        (lambda x: x / x, "NaN comes of div"),
        (lambda x: jnp.exp(100 * x) / jnp.exp(100 * x).sum(), "NaN comes of exp"),
        (summed(lambda x: jnp.sqrt(x * x)), "NaN comes of the derivative of sqrt"),
        (in_a_loop, "NaN comes of log"),
        (in_a_branch, "NaN comes of sqrt"),
        (jax.jit(jax.vmap(lambda one: jnp.arccos(one))), "NaN comes of acos"),
    ],
)
def test_the_operation_that_makes_nan_of_numbers_is_named(ask_about: Any, fn: Any, title: str) -> None:
    finding = ask_about(ID, fn, X).one

    assert (finding.title, finding.severity) == (title, "warning")
    assert finding.where[0] == __file__
    assert finding.seen[-1] == "computed again from the arguments of one call, none of which is NaN"


def test_the_derivative_behind_a_mask_is_told_at_its_line(ask_about: Any) -> None:
    """No condition of the values tells `where-gradient` which elements are left out."""
    finding = ask_about(ID, jax.grad(Energy()), POINTS).one

    assert finding.where == (__file__, Energy.__call__.__code__.co_firstlineno + 2)
    assert "safe = jnp.where" in finding.advice


def test_what_it_was_given_is_told_of_one_element(ask_about: Any) -> None:
    finding = ask_about(ID, in_a_loop, X).one

    assert finding.seen[0].startswith("log of -3 gives nan (2 of 4 elements are) at ")
    assert finding.seen[0].endswith("in iteration 1 of its loop")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sqrt(jnp.abs(x)),
        lambda x: jnp.where(x > 0, jnp.log(x), 0.0),
        lambda x: jnp.nansum(jnp.sqrt(x)),
        lambda x: x.astype(int),
    ],
)
def test_what_gives_no_nan_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X).outcome == "fine"


@pytest.mark.parametrize(
    ("fn", "given", "why"),
    [
        (lambda x: x + 1, X * np.nan, "and so did what it was given at the call that was kept"),
        (lambda x: jnp.where(x > 0, x, jnp.nan), X, "none arises but of a NaN in the program"),
        (lambda x: jax.lax.while_loop(lambda y: y[0] < 1, lambda y: y + 1, jnp.sqrt(x)), X, "too long to be run again"),
    ],
)
def test_what_does_not_arise_in_it_is_not_told(ask_about: Any, fn: Any, given: Any, why: str) -> None:
    answered = ask_about(ID, fn, given)

    assert (answered.outcome, answered.findings) == ("not checked", [])
    assert answered.why.startswith("call 1 gave NaN")
    assert why in answered.why


def test_inputs_made_of_specs_say_nothing(ask_about: Any) -> None:
    assert ask_about(ID, jnp.sqrt, "f32[4]").outcome == "not applicable"


def test_what_where_gradient_says_is_not_told_twice(ask_about: Any) -> None:
    assert ask_about(ID, summed(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)), X).outcome == "fine"


def test_of_what_does_not_trace_nothing_is_said_here(ask_about: Any) -> None:
    assert ask_about(ID, lambda x: x.missing, jnp.ones(3)).outcome == "not applicable"
