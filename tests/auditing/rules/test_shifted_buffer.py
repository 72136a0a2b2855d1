"""Buffers in the carry of a loop that are moved to make room."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "shifted-buffer"
X, BUFFER = "f32[256]", "f32[512,256]"
STEPS = 400


def scanned(step: Any) -> Any:
    return lambda x, buffer: jax.lax.scan(lambda c, i: (step(*c, i), c[0][0]), (x, buffer), jnp.arange(STEPS))


def advance(x: Any, old: Any) -> Any:
    return 0.9 * x + 0.1 * old


def concatenate(x: Any, buffer: Any, i: Any) -> Any:
    return advance(x, buffer[0]), jnp.concatenate(
        [buffer[1:], x[None]],
    )


def roll(x: Any, buffer: Any, i: Any) -> Any:
    return advance(x, buffer[3] + buffer[-9]), jnp.roll(buffer, -1, axis=0).at[-1].set(x)


def from_the_front(x: Any, buffer: Any, i: Any) -> Any:
    new = jnp.roll(buffer, 1, 0).at[0].set(x)
    return advance(x, new[17]), new


def stacked(x: Any, buffer: Any, i: Any) -> Any:
    return advance(x, jnp.take(buffer, i % 40, axis=0)), jnp.vstack([buffer[1:], x])


def along_the_last_axis(x: Any, buffer: Any) -> Any:
    step = lambda c, _: ((advance(c[0], c[1][:, 0]), jnp.concatenate([c[1][:, 1:], c[0][:, None]], 1)), None)  # noqa: E731
    return jax.lax.scan(step, (x, buffer.T), None, length=STEPS)[0][0]


def in_rows(x: Any, buffer: Any) -> Any:
    return jax.vmap(scanned(concatenate))(x[None], buffer[None])


def in_a_fori_loop(x: Any, buffer: Any) -> Any:
    return jax.lax.fori_loop(0, STEPS, lambda i, c: concatenate(*c, i), (x, buffer))[0]


class Model:
    def __call__(self, x: Any, buffer: Any) -> Any:
        return jax.lax.scan(
            lambda _, t: (jax.lax.fori_loop(0, 40, lambda i, c: roll(*c, i), (x * t, buffer))[0], None),
            x,
            jnp.arange(10.0),
        )


FOUND = [
    *map(scanned, (concatenate, roll, from_the_front, stacked)), along_the_last_axis, in_rows, in_a_fori_loop, Model(),
]  # fmt: skip


@pytest.mark.parametrize("fn", FOUND)
def test_a_buffer_that_is_moved_in_each_step_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, BUFFER).one

    assert finding.title == "moves 512 KiB in each step of a loop, to append to a buffer"
    assert "% 512].set(row)" in finding.advice
    assert finding.gain.startswith("estimated: at least 4")


def test_it_names_the_line_that_moves_it(ask_about: Any) -> None:
    finding = ask_about(ID, scanned(concatenate), X, BUFFER).one

    assert finding.where == (__file__, concatenate.__code__.co_firstlineno + 1)


@pytest.mark.slow
def test_keeping_it_is_compared_with_a_ring(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, scanned(concatenate), X, BUFFER, ratio=0.01)

    ((moved, ring),) = answered.pairs
    assert "of a loop that only keeps the buffer" in answered.one.gain
    for one, other in zip(result_of(moved), result_of(ring), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def ring(x: Any, buffer: Any, i: Any) -> Any:
    return advance(x, buffer[(i + 1) % 512]), buffer.at[i % 512].set(x)


SILENT = {
    "a ring": scanned(ring),
    "read as a whole": scanned(lambda x, b, i: (advance(x, b.mean(0)), jnp.concatenate([b[1:], x[None]]))),
    "read as a window": scanned(lambda x, b, i: (advance(x, b[:128].sum(0)), jnp.concatenate([b[1:], x[None]]))),
    "small": lambda x, b: scanned(concatenate)(x, b[:32]),
    "half of it is new": scanned(
        lambda x, b, i: (advance(x, b[0]), jnp.concatenate([b[256:], jnp.broadcast_to(x, (256, 256))]))
    ),
    "little beside the rest": scanned(lambda x, b, i: (x @ jnp.outer(x, x) @ jnp.outer(x, x), concatenate(x, b, i)[1])),
    "given out at each step": lambda x, b: jax.lax.scan(
        lambda b, _: (c := jnp.concatenate([b[1:], b[:1]]), c), b, None, length=STEPS
    ),
    "outside of loops": lambda x, b: concatenate(x, b, 0),
    "few steps": lambda x, b: jax.lax.fori_loop(0, 5, lambda i, c: concatenate(*c, i), (x, b)),
    "not moved": scanned(lambda x, b, i: (advance(x, b[0]), jnp.concatenate([b[:-1], x[None]]))),
}


@pytest.mark.parametrize("name", SILENT)
def test_what_is_not_moved_or_is_read_is_fine(ask_about: Any, name: str) -> None:
    assert ask_about(ID, SILENT[name], X, BUFFER).outcome == "fine"


def test_a_function_that_is_used_twice_counts_each_use_by_itself(ask_about: Any) -> None:
    """JAX keeps one trace of it, of which the loop that runs it often must not speak for the other."""
    few = jax.jit(lambda x, b: jax.lax.fori_loop(0, 5, lambda i, c: concatenate(*c, i), (x, b)))
    fn = lambda x, b: jax.lax.fori_loop(0, 3, lambda i, c: few(*c), few(x, b))  # noqa: E731

    assert ask_about(ID, fn, X, BUFFER).outcome == "fine"
