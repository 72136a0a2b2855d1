"""Large arrays that are copied to change a part of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.call_counter import CallCounter

ID = "copied-updates"
SEEN = {"is_seen": True, "seen_s": 2.0}


def test_updates_outside_of_jit_are_counted_with_what_they_copy() -> None:
    counter = CallCounter(60.0)
    try:
        step = jax.jit(lambda x: x + 1)
        rows, small = jnp.zeros((1024, 256)), jnp.zeros(9)
        for i in range(3):
            step(small)
            rows = rows.at[i].set(1.0)
            rows = jax.jit(lambda rows, i: rows.at[i].add(1.0))(rows, i)
            small = small.at[i].set(1.0)
    finally:
        counter.close()

    ((where, times, copied_bytes),) = counter.eager_arrays.asdict()["copied"]
    line = test_updates_outside_of_jit_are_counted_with_what_they_copy.__code__.co_firstlineno + 7
    assert where.endswith(f"test_copied_updates.py:{line}")
    assert (times, copied_bytes) == (3, 3 << 20)


def test_copies_that_take_a_share_of_the_time_are_found(ask_about_program: Any) -> None:
    arrays = {"taken": [], "copied": [["train.py:7", 1000, 10_000 << 20]]}

    finding = ask_about_program(ID, calls=SEEN, eager_arrays=arrays).one

    assert finding.title == "copies 10.0 MiB for each update, 1.00 k times"
    assert finding.gain.startswith("estimated: at least 10 % of the time")
    assert finding.where[1] == 7


def test_a_few_copies_are_fine(ask_about_program: Any) -> None:
    few = {"taken": [], "copied": [["train.py:7", 1000, 100 << 20], ["train.py:9", 10, 10_000 << 20]]}

    assert ask_about_program(ID, calls=SEEN, eager_arrays=few).outcome == "fine"


def test_where_calls_were_not_seen_nothing_is_called_fine(ask_about_program: Any) -> None:
    assert ask_about_program(ID, calls={"is_seen": False}).outcome == "not checked"
