"""What of a stack of outputs is needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.rules.loops import Stack, stacks_of
from benchax.program.index import index


def follow(use: Callable[[Any, Any, Any], Any]) -> list[Stack]:
    def fn(x: Any, w: Any) -> Any:
        x, (a, b) = jax.lax.scan(lambda x, _: (x + 1, (x, 2 * x)), x, None, length=100)
        return use(a, b, w)

    (scan,) = index(jax.make_jaxpr(fn)(jnp.ones((8, 8)), jnp.ones((8, 8)))).find("scan")
    return stacks_of(scan)


@pytest.mark.parametrize(
    ("use", "kind", "n"),
    [
        (lambda a, b, w: a[-1], "rows", 64),
        (lambda a, b, w: (a - w).max(axis=(1, 2)), "each", 100),
        (lambda a, b, w: a.sum(axis=0), "total", 64),
        (lambda a, b, w: a.reshape(100, 64).T[3:5], "each", 200),
    ],
)
def test_it_tells_what_is_needed_of_a_stack(use: Any, kind: str, n: int) -> None:
    stack, other = follow(use)

    assert [need.kind for need in stack.needs] == [kind]
    assert (stack.is_wasteful, stack.needed_bytes) == (True, 4 * n)
    assert not other.is_wasteful  # nothing reads it


def test_what_is_made_of_two_stacks_is_needed_of_both() -> None:
    both = follow(lambda a, b, w: (a * b).sum(axis=(1, 2)))

    assert [stack.is_wasteful for stack in both] == [True, True]


def test_what_depends_on_several_rows_needs_all_of_it() -> None:
    (stack, _) = follow(lambda a, b, w: a - a.mean(axis=0))

    assert (stack.is_whole, stack.is_wasteful) == (True, False)
