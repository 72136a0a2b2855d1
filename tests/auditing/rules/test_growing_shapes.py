"""Arrays that grow from step to step."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.watching.watch import watch

ID = "growing-shapes"


def sizes_of(ask_about_program: Any, sizes: list[int]) -> Any:
    f = jax.jit(lambda history: history.sum())
    with watch() as seen:
        for n in sizes:
            f(np.ones((n, 3), np.float32))
    return ask_about_program(ID, seen=seen)


def test_a_function_called_with_one_more_each_time_is_found(ask_about_program: Any) -> None:
    finding = sizes_of(ask_about_program, list(range(1, 9))).one

    assert finding.title == "<lambda> was compiled for 8 sizes, each larger than the one before"
    assert finding.seen[0] == "axis 0 of history: 1, 2, 3, …, 8"
    assert finding.where[0] == __file__
    assert finding.gain.startswith("estimated: ")


def test_large_sizes_that_grow_by_a_little_are_found(ask_about_program: Any) -> None:
    assert sizes_of(ask_about_program, [330, 340, 350, 360, 370]).one.seen[0].endswith(": 330, 340, 350, …, 370")


def test_an_operation_outside_of_jit_is_found_once_for_its_line(ask_about_program: Any) -> None:
    history = jnp.zeros((1, 3))
    with watch() as seen:
        for _ in range(8):
            history = jnp.concatenate([history, jnp.ones((1, 3))])

    assert "concatenate" in ask_about_program(ID, seen=seen).one.title


@pytest.mark.parametrize("sizes", [[4, 8, 16, 32, 64, 128, 256], [9, 4, 12, 3, 20, 7, 11], [1, 2, 3]])
def test_buckets_and_sizes_of_batches_are_fine(ask_about_program: Any, sizes: list[int]) -> None:
    assert sizes_of(ask_about_program, sizes).outcome == "fine"


def test_it_is_not_told_as_a_hot_spot_as_well(ask_about_program: Any) -> None:
    f = jax.jit(lambda history: history.sum())
    with watch() as seen:
        for n in range(1, 9):
            f(np.ones(n, np.float32))

    assert ask_about_program("recompile-hot-spot", seen=seen).outcome == "fine"
