"""Integers that become floats."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

ID = "integer-default"


def selu(x: Any) -> Any:
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


def test_an_arange_that_is_computed_with_is_named_and_floats_are_compared(ask_about: Any) -> None:
    answered = ask_about(ID, selu, jnp.arange(100_000), ratio=0.8)

    assert answered.one.seen[0].startswith("args[0] i32[100000], 391 KiB, is converted to float32 at ")
    assert answered.one.where == (__file__, selu.__code__.co_firstlineno + 1)
    assert answered.one.gain == "measured: 1.00 ms → 800 µs per call (1.25×, 1.23 – 1.27)"
    ((_, variant),) = answered.pairs
    assert variant.inputs()[0][0].dtype == jnp.float32


def test_a_negated_integer_is_followed_to_its_conversion(ask_about: Any) -> None:
    assert ask_about(ID, lambda x: jnp.exp(-x), "i32[2000]").outcome == "finding"


def test_indices_stay_integers_and_are_fine(ask_about: Any) -> None:
    assert ask_about(ID, lambda i, table: table[i] * 2, jnp.arange(2000), "f32[2000,2]").outcome == "fine"


def test_floats_are_not_asked_about(ask_about: Any) -> None:
    assert ask_about(ID, selu, "f32[100000]").outcome == "not applicable"
