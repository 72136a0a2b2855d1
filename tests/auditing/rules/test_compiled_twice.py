"""Second programs for the same shapes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.rules import compiled_twice as module
from benchax.watching.watch import watch

ID = "compiled-twice"


def test_a_carry_that_begins_as_a_number_is_found_with_its_argument(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    mean = 0.0
    f = jax.jit(lambda mean, x: 0.9 * mean + 0.1 * x.mean())
    with watch() as seen:
        for _ in range(4):
            mean = f(mean, np.ones(8, np.float32))

    found = ask_about_program(ID, seen=seen)

    assert found.one.seen[0].startswith("mean: weak type: f32 now, a Python number before")
    assert "jnp.float32(0.0)" in found.one.advice
    assert found.one.gain.startswith("estimated: ")
    assert ask_about_program("recompile-hot-spot", seen=seen).outcome == "fine"


def test_other_shapes_and_one_program_are_fine(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    f = jax.jit(lambda x: x + 1)
    with watch() as seen:
        for n in (3, 4):
            f(jnp.ones(n))
            f(jnp.ones(n))

    assert ask_about_program(ID, seen=seen).outcome == "fine"


def test_a_number_that_becomes_an_array_of_another_dtype_is_found(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    count: Any = 0
    f = jax.jit(lambda count: count + jnp.float32(1))
    with watch() as seen:
        for _ in range(3):
            count = f(count)

    assert ask_about_program(ID, seen=seen).one.seen[0].startswith("count: dtype")


def test_two_dtypes_of_arrays_are_two_uses(ask_about_program: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(module, "LONG_S", 0.0)
    f = jax.jit(lambda x: x + 1)
    with watch() as seen:
        for dtype in (jnp.float32, jnp.bfloat16):
            f(jnp.ones(3, dtype))

    assert ask_about_program(ID, seen=seen).outcome == "fine"
