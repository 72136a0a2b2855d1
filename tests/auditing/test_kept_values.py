"""Values inside of a program, computed from the arguments of a call that were kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.rule import compute_values
from benchax.errors import NotMeasured
from benchax.program.index import index


def both(x: Any, y: Any, key: Any) -> Any:
    drawn = jax.random.normal(key, y.shape)
    return x * 2, y + drawn


def asked(data: list[Any], output: int) -> np.ndarray:
    closed = jax.make_jaxpr(both)(jnp.ones(2), jnp.ones(3), jax.random.key(0))
    evidence: Any = SimpleNamespace(program=index(closed), data=data)
    return compute_values(evidence, [index(closed).outputs[output]])[0]


def test_only_what_a_value_is_made_of_has_to_be_kept() -> None:
    np.testing.assert_array_equal(asked([np.full(2, 3.0), None, None], 0), [6.0, 6.0])

    with pytest.raises(NotMeasured, match="an array that it depends on was too large to be kept"):
        asked([None, np.ones(3), jax.random.key(1)], 0)


def test_random_keys_are_given_as_they_are() -> None:
    key = jax.random.key(7)

    expected = 1 + jax.random.normal(key, (3,))
    np.testing.assert_allclose(asked([None, np.ones(3), key], 1), expected, rtol=1e-6)
