"""Rules about wrong numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

# ---- nan-results -----------------------------------------------------------------------------------------------------

X = np.array([1.0, -2.0, 0.0, 3.0], np.float32)
POINTS = np.zeros((3, 2), np.float32)


class Energy:
    def __call__(self, points: Any) -> Any:
        apart = points[:, None] - points[None]
        r = jnp.linalg.norm(apart, axis=-1)
        return jnp.where(jnp.eye(3, dtype=bool), 0.0, jnp.exp(-r)).sum()


def summed(fn: Any) -> Any:
    return jax.grad(lambda x: fn(x).sum())


def in_a_loop(x: Any) -> Any:
    return jax.lax.scan(lambda carry, _: (jnp.log(carry - 1), None), x, length=3)[0]


def in_a_branch(x: Any) -> Any:
    return jax.lax.cond(x[0] > 0, jnp.sqrt, jnp.abs, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "title"),
    [
        (lambda x: jnp.sqrt(x), "NaN comes from sqrt"),
        (lambda x: jnp.abs(x) * jnp.log(jnp.abs(x)), "NaN comes from log"),
        (lambda x: x / x, "NaN comes from div"),
        (lambda x: jnp.exp(100 * x) / jnp.exp(100 * x).sum(), "NaN comes from exp"),
        (summed(lambda x: jnp.sqrt(x * x)), "NaN comes from the derivative of sqrt"),
        (in_a_loop, "NaN comes from log"),
        (in_a_branch, "NaN comes from sqrt"),
        (jax.jit(jax.vmap(lambda one: jnp.arccos(one))), "NaN comes from acos"),
    ],
)
def test_the_operation_that_makes_nan_of_numbers_is_named(ask_about: Any, fn: Any, title: str) -> None:
    finding = ask_about("nan-results", fn, X).one

    assert (finding.title, finding.severity) == (title, "warning")
    assert finding.where[0] == __file__
    assert finding.seen[-1] == "recomputed from the arguments of one call, none of which is NaN"


def test_the_derivative_behind_a_mask_is_told_at_its_line(ask_about: Any) -> None:
    """No condition of the values tells `where-gradient` which elements are left out."""
    finding = ask_about("nan-results", jax.grad(Energy()), POINTS).one

    assert finding.where == (__file__, Energy.__call__.__code__.co_firstlineno + 2)
    assert "safe = jnp.where" in finding.advice


def test_what_it_was_given_is_told_of_one_element(ask_about: Any) -> None:
    finding = ask_about("nan-results", in_a_loop, X).one

    assert finding.seen[0].startswith("log of -3 gives nan (2 of 4 elements are) at ")
    assert finding.seen[0].endswith("in iteration 1 of its loop")


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: jnp.sqrt(jnp.abs(x)),
        lambda x: jnp.where(x > 0, jnp.log(x), 0.0),
        lambda x: jnp.nansum(jnp.sqrt(x)),
        lambda x: x.astype(int),
    ],
)
def test_what_gives_no_nan_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about("nan-results", fn, X).outcome == "fine"


@pytest.mark.parametrize(
    ("fn", "given", "why"),
    [
        (lambda x: x + 1, X * np.nan, "and the arguments of the call that was kept already hold NaN"),
        (lambda x: jnp.where(x > 0, x, jnp.nan), X, "NaN arises only from a NaN in the program"),
        (
            lambda x: jax.lax.while_loop(lambda y: y[0] < 1, lambda y: y + 1, jnp.sqrt(x)),
            X,
            "takes too long to run again",
        ),
    ],
)
def test_what_does_not_arise_in_it_is_not_told(ask_about: Any, fn: Any, given: Any, why: str) -> None:
    answered = ask_about("nan-results", fn, given)

    assert (answered.outcome, answered.findings) == ("not checked", [])
    assert answered.why.startswith("call 1 gave NaN")
    assert why in answered.why


def test_inputs_made_of_specs_say_nothing(ask_about: Any) -> None:
    assert ask_about("nan-results", jnp.sqrt, "f32[4]").outcome == "not applicable"


def test_what_where_gradient_says_is_not_told_twice(ask_about: Any) -> None:
    assert ask_about("nan-results", summed(lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)), X).outcome == "fine"


# ---- out-of-bounds-index ---------------------------------------------------------------------------------------------

TABLE = np.ones((5, 3), np.float32)
FROM_ONE = np.array([1, 2, 5, 3, 4])
WIDE = np.array([0, 7, 9])
COLUMNS = np.array([[9, 0], [10, 2]])


class Model:
    def __call__(self, table: Any, index: Any) -> Any:
        return table[index].sum()


def in_a_batch(table: Any, index: Any) -> Any:
    return jax.vmap(lambda one: Model()(table, one))(index)


def in_a_loop_of_index(table: Any, index: Any) -> Any:
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
        jax.jit(jax.grad(in_a_loop_of_index)),
        lambda table, index: jnp.take(table, index, axis=0),
        lambda table, index: table.at[index].add(1.0),
        lambda table, index: jax.ops.segment_sum(table, index, num_segments=5),
        lambda table, index: jax.nn.one_hot(index, 5),
    ],
)
def test_numbers_from_one_that_leave_the_axis_are_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about("out-of-bounds-index", fn, TABLE, FROM_ONE).one

    assert finding.title == "index begins at 1, and its indices leave an axis of 5"
    assert finding.seen[0] == "indices of index are 1 to 5 at one call"
    assert finding.seen[2].startswith("1 of 5 lie outside: ")
    assert finding.advice.startswith("Indices begin at 0: take index - 1.")


@pytest.mark.parametrize(
    ("fn", "what"),
    [
        (lambda table, index: table[index], "JAX reads at the nearest valid index"),
        (lambda table, index: jnp.take(table, index, axis=0), "JAX returns NaN"),
        (lambda table, index: table.at[index].set(0.0), "writes there are dropped"),
        (lambda table, index: table[index, index], "JAX reads at the nearest valid index"),
    ],
)
def test_it_says_what_jax_does_there(ask_about: Any, fn: Any, what: str) -> None:
    finding = ask_about("out-of-bounds-index", fn, TABLE, WIDE).one

    assert finding.where == (__file__, fn.__code__.co_firstlineno)
    assert "axis 0 of f32[5,3] has 5 elements: indices are 0 to 4" in finding.seen
    assert f"2 of 3 lie outside: {what}" in finding.seen[2]


def windows(x: Any, n: int) -> Any:
    return jax.vmap(lambda start: jax.lax.dynamic_slice_in_dim(x, start, 2))(2 * jnp.arange(n))


def neighbours(x: Any, n: int) -> Any:
    return jax.lax.fori_loop(0, n, lambda i, total: total + x[i + 1], jnp.zeros(3))


@pytest.mark.parametrize(("fn", "n", "last"), [(windows, 3, 3), (neighbours, 5, 4)])
def test_a_counter_that_goes_too_far_is_found(ask_about: Any, fn: Any, n: int, last: int) -> None:
    finding = ask_about("out-of-bounds-index", fn, TABLE, n, static=1).one

    assert f"indices are 0 to {last}" in finding.seen[1]
    assert ask_about("out-of-bounds-index", fn, TABLE, n - 1, static=1).outcome == "fine"


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
    assert not ask_about("out-of-bounds-index", fn, TABLE, index).findings


def test_nothing_is_said_of_made_up_inputs(ask_about: Any) -> None:
    assert ask_about("out-of-bounds-index", lambda x, i: x[i], "f32[5]", "i32[4]").outcome == "not applicable"


def test_nothing_is_said_where_inputs_were_not_kept(ask_about: Any) -> None:
    answered = ask_about("out-of-bounds-index", lambda x, i: x[i], TABLE, WIDE, parts={"data": ()})

    assert answered.outcome == "not checked"
