"""Arrays of lists of Python numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.host_calls import HostCalls

ID = "python-lists"


def asked(ask_about_program: Any, noted: HostCalls) -> Any:
    noted.close()
    return ask_about_program(ID, host=noted.asdict())


@pytest.mark.parametrize("make", [lambda rows: jnp.array(rows), lambda rows: jnp.asarray(tuple(rows))])
def test_lists_that_become_arrays_in_each_step_are_found(ask_about_program: Any, noted: HostCalls, make: Any) -> None:
    rows = [[0.5] * 64 for _ in range(32)]
    for _ in range(6):
        make(rows)

    finding = asked(ask_about_program, noted).one

    assert finding.title.endswith("makes arrays of lists of 2.05 k Python numbers")
    assert finding.seen[0].startswith("6 times")
    assert Path(finding.where[0]).name == Path(__file__).name


@pytest.mark.parametrize(
    "make",
    [
        lambda: jnp.array([0.1, 0.2, 0.3]),
        lambda: jnp.asarray([np.ones(64)] * 32),
        lambda: jnp.array(np.ones((64, 32)).tolist()[:2]),
        lambda: jax.jit(lambda x: x + jnp.array([0.5] * 4096))(1.0),
    ],
)
def test_short_lists_and_lists_of_arrays_are_fine(ask_about_program: Any, noted: HostCalls, make: Any) -> None:
    for _ in range(6):
        make()

    assert asked(ask_about_program, noted).outcome == "fine"


def test_a_table_that_is_made_once_is_fine(ask_about_program: Any, noted: HostCalls) -> None:
    jnp.array([0.5] * 4096)

    assert asked(ask_about_program, noted).outcome == "fine"


def test_what_was_not_noted_is_not_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID).outcome == "not checked"
