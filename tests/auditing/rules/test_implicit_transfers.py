"""Data that go to and fro without being asked. The lines are those of this file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_versions import shows_calls

ID = "implicit-transfers"


def reads_back(a: Any) -> Any:
    return a * float(a.sum())


def sends(a: Any) -> Any:
    return a + np.ones(100, "f4") if a.sum() > -1e9 else a


def compiles(a: Any) -> Any:
    return a + np.ones(100, "f4") * np.float32(2)


def stays(a: Any) -> Any:
    return a * 2


def test_the_line_that_reads_a_result_back_is_named_with_what_the_host_spent(ask_about: Any) -> None:
    finding = ask_about(ID, reads_back, "f32[100]").one

    assert finding.title == "reads f32[] back by __float__"
    file, line = finding.where
    assert (Path(file).resolve(), line) == (Path(__file__), reads_back.__code__.co_firstlineno + 1)
    assert finding.gain.startswith("estimated: at most ")
    assert finding.gain_s > 0


@shows_calls
def test_the_line_that_sends_an_array_is_named(ask_about: Any) -> None:
    reads, finding = ask_about(ID, sends, "f32[100]").findings

    assert reads.title == "reads bool[] back by __bool__"
    assert finding.title == "sends NumPy f32[100] to the device for add"
    assert finding.seen[0] == "1 × in one call, 400 B together"


def test_constants_of_what_compiles_are_part_of_the_program(ask_about: Any) -> None:
    assert ask_about(ID, compiles, "f32[100]").outcome == "fine"


def test_what_is_read_while_it_compiles_is_no_part_of_a_call(ask_about: Any) -> None:
    weights = jnp.ones((4, 4))
    inner = jax.jit(lambda a: a @ weights)

    finding = ask_about(ID, lambda a: inner(a) if a.sum() > -1e9 else a, "f32[4]").one

    assert finding.title == "reads bool[] back by __bool__"


def test_a_function_whose_data_stay_is_fine(ask_about: Any) -> None:
    assert ask_about(ID, stays, "f32[100]").outcome == "fine"


def test_a_function_that_fails_when_called_was_not_checked(ask_about: Any) -> None:
    def fails(a: Any) -> Any:
        raise ValueError("no")

    answered = ask_about(ID, fails, "f32[4]")

    assert (answered.outcome, answered.why.startswith("calling it fails: ValueError: no")) == ("not checked", True)
