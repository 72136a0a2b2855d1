"""Tolerances that a floating-point type does not resolve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "unreachable-tolerance"
LIMIT = 300
RNG = np.random.default_rng(0)
A = (4 * np.eye(30) + RNG.normal(size=(30, 30)) / 8).astype(np.float32)
B = (1 + RNG.random(30)).astype(np.float32)


@dataclass(frozen=True)
class Settings:
    limit: int = LIMIT
    tolerance: float = 3e-12  # named


def jacobi(a: Any, b: Any, settings: Settings = Settings()) -> Any:
    def unfinished(s: Any) -> Any:
        _, error, count = s
        return (error > settings.tolerance) & (count < settings.limit)

    def sweep(s: Any) -> Any:
        x, _, count = s
        x = x + (b - a @ x) / jnp.diag(a)
        return x, jnp.linalg.norm(b - a @ x), count + 1

    return jax.lax.while_loop(unfinished, sweep, (jnp.zeros_like(b), jnp.float32(jnp.inf), 0))


def with_a_flag(a: Any, b: Any) -> Any:
    def sweep(s: Any) -> Any:
        x, _, count = s
        r = b - a @ x
        return x + r / jnp.diag(a), jnp.sum(jnp.abs(r)) < 10.0**-13, count + 1

    return jax.lax.while_loop(lambda s: ~s[1] & (s[2] < LIMIT), sweep, (jnp.zeros_like(b), False, 0))


def relative(a: Any, b: Any) -> Any:
    bound = 2e-10 * jnp.linalg.norm(b)

    def sweep(s: Any) -> Any:
        x, count = s
        return x + (b - a @ x) / jnp.diag(a), count + 1

    def unfinished(s: Any) -> Any:
        return jnp.logical_and(jnp.linalg.norm(b - a @ s[0]) >= bound, s[1] < LIMIT)

    return jax.lax.while_loop(unfinished, sweep, (jnp.zeros_like(b), 0))


def largest_eigenvalue(a: Any, b: Any) -> Any:
    """The tolerance is a part of what the loop has found so far."""

    def step(s: Any) -> Any:
        x, _, _, count = s
        y = (a + a.T) @ x
        return y / jnp.linalg.norm(y), x @ y, jnp.linalg.norm(y - (x @ y) * x), count + 1

    start = (b / jnp.linalg.norm(b), jnp.float32(1), jnp.float32(1), 0)
    return jax.lax.while_loop(lambda s: (s[2] > 1e-10 * jnp.abs(s[1])) & (s[3] < LIMIT), step, start)


def in_a_batch(a: Any, b: Any) -> Any:
    return jax.vmap(jacobi, in_axes=(None, 0))(a, jnp.stack([b, 2 * b]))


@pytest.mark.parametrize("fn", [jacobi, with_a_flag, relative, largest_eigenvalue, in_a_batch, jax.jit(jacobi)])
def test_a_loop_that_ends_above_a_tolerance_below_rounding_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, A, B).one

    assert "float32 does not resolve" in finding.title or "stops falling" in finding.title
    assert f"did {LIMIT} iterations" in finding.seen[0]


@pytest.mark.parametrize(("fn", "text"), [(jacobi, "# named"), (with_a_flag, "10.0**-13"), (relative, "2e-10 *")])
def test_it_names_the_line_where_the_tolerance_is_written(ask_about: Any, fn: Any, text: str) -> None:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    (line,) = [i for i, each in enumerate(lines, 1) if text in each and "parametrize" not in each]

    assert ask_about(ID, fn, A, B).one.where == (__file__, line)


def conjugate_gradients(a: Any, b: Any) -> Any:
    """Its residual is updated, not computed anew, and becomes as small as one likes."""
    spd = a.T @ a

    def step(s: Any) -> Any:
        x, r, p, count = s
        q = spd @ p
        alpha = (r @ r) / (p @ q)
        kept = r - alpha * q
        return x + alpha * p, kept, kept + (kept @ kept) / (r @ r) * p, count + 1

    start = (jnp.zeros_like(b), b, b, 0)
    return jax.lax.while_loop(lambda s: (s[1] @ s[1] > 1e-20) & (s[3] < LIMIT), step, start)


def to_a_fixed_point(a: Any, b: Any) -> Any:
    """Halved until nothing is left."""

    def step(s: Any) -> Any:
        x, _, count = s
        new = jnp.round(x / 2)
        return new, jnp.max(jnp.abs(new - x)), count + 1

    start = (100 * b, jnp.float32(1), 0)
    return jax.lax.while_loop(lambda s: (s[1] > 1e-12) & (s[2] < LIMIT), step, start)


def integrate(a: Any, b: Any) -> Any:
    def step(s: Any) -> Any:
        return s[0] + 1e-3, s[1] - 1e-3 * (a @ s[1]), s[2] + 1

    return jax.lax.while_loop(lambda s: (s[0] < 1.0) & (s[2] < 100), step, (jnp.float32(0), b, 0))


def slow(a: Any, b: Any) -> Any:
    """The limit ends it, and its numbers are small enough for the tolerance."""

    def step(s: Any) -> Any:
        x, _, count = s
        new = 0.99 * x
        return new, jnp.max(jnp.abs(x - new)), count + 1

    start = (1e-6 * b, jnp.float32(1), 0)
    return jax.lax.while_loop(lambda s: (s[1] > 1e-10) & (s[2] < LIMIT), step, start)


def balanced(a: Any, b: Any) -> Any:
    """A difference of large numbers, and a small one: together they may be as small as one likes."""

    def step(s: Any) -> Any:
        x, _, count = s
        return x, jnp.max(jnp.abs((b - x) + 1e-8 * jnp.cos(count))), count + 1

    return jax.lax.while_loop(lambda s: (s[1] > 1e-12) & (s[2] < 50), step, (b, jnp.float32(1), 0))


@pytest.mark.parametrize(
    "fn", [conjugate_gradients, to_a_fixed_point, slow, balanced, lambda a, b: jacobi(a, b, Settings(tolerance=1e-4))]
)
def test_a_tolerance_that_is_reached_or_can_be_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, A, B).outcome == "fine"


def test_a_time_that_a_loop_integrates_to_is_no_tolerance(ask_about: Any) -> None:
    assert ask_about(ID, integrate, A, B).outcome == "not applicable"


def test_nothing_is_said_without_the_inputs_of_a_call(ask_about: Any) -> None:
    answered = ask_about(ID, jacobi, A, B, parts={"data": ()})

    assert answered.outcome == "not checked"
    assert "was not kept" in answered.why
