"""Indices that lie outside of what they index."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "out-of-bounds-index"
TABLE = np.ones((5, 3), np.float32)
FROM_ONE = np.array([1, 2, 5, 3, 4])
WIDE = np.array([0, 7, 9])
COLUMNS = np.array([[9, 0], [10, 2]])


class Model:
    def __call__(self, table: Any, index: Any) -> Any:
        return table[index].sum()


def in_a_batch(table: Any, index: Any) -> Any:
    return jax.vmap(lambda one: Model()(table, one))(index)


def in_a_loop(table: Any, index: Any) -> Any:
    def add(total: Any, one: Any) -> Any:
        return total + table[one].sum(), None

    return jax.lax.scan(add, 0.0, index)[0]


def of_random_rows(table: Any, index: Any) -> Any:
    def body(key: Any, _: Any) -> Any:
        key, use = jax.random.split(key)
        pick = jax.random.randint(use, (2,), 0, index.shape[0])
        return key, in_a_batch(table, index[pick])

    return jax.lax.scan(body, jax.random.key(0), None, length=3)[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        lambda table, index: table[index],
        in_a_batch,
        of_random_rows,
        jax.jit(jax.grad(in_a_loop)),
        lambda table, index: jnp.take(table, index, axis=0),
        lambda table, index: table.at[index].add(1.0),
        lambda table, index: jax.ops.segment_sum(table, index, num_segments=5),
        lambda table, index: jax.nn.one_hot(index, 5),
    ],
)
def test_numbers_from_one_that_leave_the_axis_are_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, TABLE, FROM_ONE).one

    assert finding.title == "index begins at 1, and its indices leave an axis of 5"
    assert finding.seen[0] == "indices of index are 1 to 5 at one call"
    assert finding.seen[2].startswith("1 of 5 lie outside: ")
    assert finding.advice.startswith("Indices begin at 0: take index - 1.")


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda table, index: table[index], "JAX reads at the nearest index that is within"),
        (lambda table, index: jnp.take(table, index, axis=0), "JAX gives NaN"),
        (lambda table, index: table.at[index].set(0.0), "what would be written there is dropped"),
        (lambda table, index: table[index, index], "JAX reads at the nearest index"),
    ],
)
def test_it_says_what_jax_does_there(ask_about: Any, fn: Any, what: str) -> None:
    finding = ask_about(ID, fn, TABLE, WIDE).one

    assert finding.where == (__file__, fn.__code__.co_firstlineno)
    assert "axis 0 of f32[5,3] has 5 elements: indices are 0 to 4" in finding.seen
    assert f"2 of 3 lie outside: {what}" in finding.seen[2]


def windows(x: Any, n: int) -> Any:
    return jax.vmap(lambda start: jax.lax.dynamic_slice_in_dim(x, start, 2))(2 * jnp.arange(n))


def neighbours(x: Any, n: int) -> Any:
    return jax.lax.fori_loop(0, n, lambda i, total: total + x[i + 1], jnp.zeros(3))


@pytest.mark.parametrize(("fn", "n", "last"), [(windows, 3, 3), (neighbours, 5, 4)])
def test_a_counter_that_goes_too_far_is_found(ask_about: Any, fn: Any, n: int, last: int) -> None:
    finding = ask_about(ID, fn, TABLE, n, static=1).one

    assert f"indices are 0 to {last}" in finding.seen[1]
    assert ask_about(ID, fn, TABLE, n - 1, static=1).outcome == "fine"


@pytest.mark.parametrize(
    ("fn", "index"),
    [
        (lambda table, index: table[index], np.array([0, -5, 4])),  # from the end
        (lambda table, index: table[index], np.array([0, 5, 1])),  # one number for padding
        (lambda table, index: jax.ops.segment_sum(table, index, num_segments=5), np.array([0, 5, -1, 1, 2])),
        (lambda table, index: table.at[index].get(mode="fill"), WIDE),
        (lambda table, index: table.at[index].add(1.0, mode="drop"), WIDE),
        (lambda table, index: table[jnp.clip(index, 0, 4)], WIDE),
        (lambda table, index: table[index % 5], WIDE),
        (lambda table, index: table[index - 1], FROM_ONE),
        (lambda table, index: jnp.where(index < 5, table[index, 0], 0.0), WIDE),
        (lambda table, index: table[index[:, 1]], COLUMNS),
        (lambda table, index: jax.lax.map(lambda row: table[row[1]], index), COLUMNS),
    ],
)
def test_what_is_within_or_meant_is_silent(ask_about: Any, fn: Any, index: Any) -> None:
    assert not ask_about(ID, fn, TABLE, index).findings


def test_nothing_is_said_of_made_up_inputs(ask_about: Any) -> None:
    assert ask_about(ID, lambda x, i: x[i], "f32[5]", "i32[4]").outcome == "not applicable"


def test_nothing_is_said_where_inputs_were_not_kept(ask_about: Any) -> None:
    answered = ask_about(ID, lambda x, i: x[i], TABLE, WIDE, parts={"data": ()})

    assert answered.outcome == "not checked"
