"""float64 that no input asks for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
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
        "jax_enable_x64 is off, so that nothing is float64",
    )
