"""Numbers that are equal on the device and were not on the host."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import jax.numpy as jnp
import numpy as np

from benchax.auditing.lost_digits import find_lost_digits

ID = "rounded-inputs"
DATES = 2459580.5 + np.linspace(0, 60, 1440)


def noted(given: Any, to: Any, where: str = "orbit.py:41") -> dict[str, Any]:
    lost = find_lost_digits(given, to)
    assert lost is not None
    return {"where": where, "lost": asdict(lost)}


def test_the_line_and_how_many_numbers_are_left_are_told(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lost_digits=[noted(DATES, np.float32)] * 2).one

    assert finding.title == "1440 different numbers in f64 are 241 in f32"
    assert finding.seen[1] == "f32 holds a number of this size to 0.25"
    assert (finding.severity, finding.where[1]) == ("warning", 41)
    assert "jnp.asarray(t - t[0])" in finding.advice


def test_integers_that_wrap_are_told(ask_about_program: Any) -> None:
    finding = ask_about_program(ID, lost_digits=[noted(np.arange(99) << 40, np.int32)]).one

    assert finding.title == "numbers in i64 wrap around in i32"


def test_without_any_it_is_fine_and_unseen_it_is_not_checked(ask_about_program: Any) -> None:
    assert ask_about_program(ID, lost_digits=[]).outcome == "fine"
    assert ask_about_program(ID).outcome == "not checked"


def test_inputs_of_a_function_are_looked_at(ask_about: Any) -> None:
    assert ask_about(ID, jnp.sum, DATES).one.title == "1440 different numbers in f64 are 241 in f32"
    assert ask_about(ID, jnp.sum, DATES - DATES[0]).outcome == "fine"
    assert ask_about(ID, jnp.sum, jnp.ones(3)).outcome == "not applicable"
