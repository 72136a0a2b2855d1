"""Numbers that are equal on the device and were not on the host."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

ID = "rounded-inputs"
DATES = 2459580.5 + np.linspace(0, 60, 1440)


def test_inputs_of_a_function_are_looked_at(ask_about: Any) -> None:
    assert ask_about(ID, jnp.sum, DATES).one.title == "1440 different numbers in f64 are 241 in f32"
    assert ask_about(ID, jnp.sum, DATES - DATES[0]).outcome == "fine"
    assert ask_about(ID, jnp.sum, jnp.ones(3)).outcome == "not applicable"
