"""XLA's count of operations, and where it is no count."""

from __future__ import annotations

from itertools import repeat
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.model import Cost
from benchax.program.compiled import cost, inline_flops, lowered_flops

X = jnp.ones((64, 64))
MATMUL = 2 * 64**3


def stage(found: Any) -> Any:
    """Stands for a Compiled whose analysis says `found`, or raises it."""
    return SimpleNamespace(cost_analysis=Mock(side_effect=repeat(found)))


def built(fun: Any, *args: Any) -> tuple[jax.stages.Lowered, jax.stages.Compiled, str]:
    lowered = jax.jit(fun).lower(*args)
    compiled = lowered.compile()
    return lowered, compiled, compiled.as_text() or ""


def callback(x: jax.Array) -> jax.Array:
    return jax.pure_callback(lambda y: np.asarray(y), jax.ShapeDtypeStruct(x.shape, x.dtype), x)


def test_a_matmul_is_counted():
    lowered, compiled, text = built(lambda x, y: x @ y, X, X)

    assert cost(compiled, text) == Cost(flops=MATMUL, transcendentals=None, bytes_accessed=3 * X.nbytes)
    assert lowered_flops(lowered) == MATMUL
    assert inline_flops(compiled) == MATMUL


def test_what_is_absent_is_not_zero_but_for_the_inline_rule():
    """tanh adds to the transcendentals only; XLA:CPU then sees 0 FLOP."""
    lowered, compiled, text = built(jnp.tanh, X)

    found = cost(compiled, text)

    assert found is not None
    assert (found.flops, found.transcendentals) == (None, X.size)
    assert inline_flops(compiled) == 0
    assert lowered_flops(lowered) is None


def test_a_loop_is_counted_once_and_said_to_be_there():
    loop = built(lambda x: jax.lax.fori_loop(0, 10, lambda _, c: c @ x, x), X)
    unrolled = built(lambda x: (x @ x) @ x, X)

    found, straight = cost(loop[1], loop[2]), cost(unrolled[1], unrolled[2])

    assert found is not None
    assert straight is not None
    assert found.has_loops
    assert found.flops == pytest.approx(MATMUL, rel=1e-3)
    assert not straight.has_loops
    assert straight.flops == 2 * MATMUL


@pytest.mark.parametrize("fun", [callback, lambda x: callback(x @ x) @ x, lambda x: jnp.linalg.cholesky(x @ x) @ x])
def test_a_sum_with_a_hole_in_it_is_not_shown(fun: Any):
    """XLA adds -1 for every custom call and then goes on adding."""
    lowered, compiled, text = built(fun, jnp.eye(64))

    assert cost(compiled, text) == Cost()
    assert (lowered_flops(lowered) or 0.0) <= 3 * MATMUL
    assert inline_flops(compiled) == (compiled.cost_analysis() or {})["flops"]


@pytest.mark.parametrize("found", [None, [], "?", NotImplementedError(), RuntimeError("UNIMPLEMENTED")])
def test_no_analysis_is_no_cost(found: Any):
    assert cost(stage(found), "") is None
    assert inline_flops(stage(found)) is None
    assert lowered_flops(stage(found)) is None


def test_negative_is_unknown():
    unknown = stage({"flops": -1.0, "bytes accessed": -1.0, "transcendentals": 2.0})

    assert cost(unknown, "") == Cost(transcendentals=2.0)
