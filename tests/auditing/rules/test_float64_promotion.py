"""float64 that no input asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "float64-promotion"
SCALES = np.arange(5.0)


@pytest.fixture
def x64() -> Iterator[None]:
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def scaled(a: Any) -> Any:
    return a * SCALES


@pytest.mark.usefixtures("x64")
def test_the_line_where_float64_comes_in_is_named(ask_about: Any) -> None:
    finding = ask_about(ID, scaled, "f32[5]").one

    assert finding.title == "float64 out of float32 inputs"
    assert finding.where == (__file__, scaled.__code__.co_firstlineno + 1)
    assert finding.seen[0].startswith("convert_element_type makes f64[5] at ")
    assert finding.seen[-1] == "2 of 2 equations make float64 arrays, 80 B as traced"


@pytest.mark.usefixtures("x64")
def test_python_numbers_widen_nothing(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a * 2.0, "f32[5]").outcome == "fine"


@pytest.mark.usefixtures("x64")
def test_float64_inputs_ask_for_it(ask_about: Any) -> None:
    assert ask_about(ID, lambda a: a * 2.0, "f64[5]").outcome == "not applicable"


def test_without_x64_nothing_is_float64(ask_about: Any) -> None:
    answered = ask_about(ID, scaled, "f32[5]")

    assert (answered.outcome, answered.why) == (
        "not applicable",
        "jax_enable_x64 is off, so nothing is float64",
    )


def tapered(x: Any) -> Any:
    return x * taper(len(x))


def taper(n: int) -> Any:
    return jnp.asarray(np.hanning(n))


def descend(w: Any, x: Any) -> Any:
    return w - 0.1 * jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w) ** 2))(w), jnp.sum(x)


@pytest.mark.usefixtures("x64")
def test_a_state_of_float32_that_meets_float64_is_found_at_the_line_that_makes_it(ask_about: Any) -> None:
    parts = {"wide_lines": {"f64[900,64]": (f"{__file__}:7",)}}

    finding = ask_about(ID, descend, "f32[64,64]", "f64[300,64]", parts=parts).one

    assert finding.title == "computes in float64 what it returns as float32"
    assert finding.seen[0] == "float64 among its inputs: x f64[300,64]"
    assert finding.where == (__file__, 7)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (descend, ("f64[64,64]", "f64[300,64]")),
        (descend, ("f64[64,64]", "f32[300,64]")),
        (lambda w, x: (w, x @ w), ("f32[64,64]", "f64[300,64]")),
        (lambda w, x: jnp.sum((x @ w) ** 2), ("f32[64,64]", "f64[300,64]")),
    ],
)
def test_float64_that_is_kept_or_belongs_to_the_state_is_asked_for(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "not applicable"


@pytest.mark.usefixtures("x64")
def test_a_little_float64_beside_a_state_of_float32_is_fine(ask_about: Any) -> None:
    def step(w: Any, clock: Any) -> Any:
        return jnp.tanh(w @ w), jnp.sum(clock)

    assert ask_about(ID, step, "f32[256,256]", "f64[8]").outcome == "fine"
