"""Arrays that are taken apart between steps."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.call_counter import CallCounter

ID = "element-reads"


@pytest.fixture
def counter() -> Any:
    counter = CallCounter(60.0)
    yield counter
    counter.close()


def answer(ask_about_program: Any, counter: CallCounter) -> Any:
    counter.close()
    return ask_about_program(ID, calls=counter.asdict(), eager_arrays=counter.eager_arrays.asdict())


def test_elements_that_are_read_one_by_one_are_found_with_their_line(ask_about_program: Any, counter: Any) -> None:
    step = jax.jit(lambda x: x + 1)
    x = jnp.zeros(64)
    for _ in range(10):
        x = step(x)
        read = [x[t].item() for t in range(64)]

    finding = answer(ask_about_program, counter).one

    assert len(read) == 64
    assert finding.title.endswith("k operations from one line")
    assert finding.where == (__file__, read_line())


def read_line() -> int:
    code = test_elements_that_are_read_one_by_one_are_found_with_their_line.__code__
    return code.co_firstlineno + 5


def test_batches_that_are_taken_by_index_are_fine(ask_about_program: Any, counter: Any) -> None:
    step = jax.jit(lambda x: x.sum())
    data = jnp.zeros((600, 3))
    for i in range(600):
        step(data[i])

    assert counter.eager_arrays.asdict()["taken"][0][1] >= 600
    assert answer(ask_about_program, counter).outcome == "fine"


def test_where_calls_were_not_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID, calls={"is_seen": False}).outcome == "not checked"
