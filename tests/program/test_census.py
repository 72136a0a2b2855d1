"""What a program executes, counted; and what a timed region lacks or adds beside the function by itself."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from compiled_texts import f32, hlo_text, module_of
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from benchax.program import census, hlo
from benchax.program.census import UNKNOWN_LOOP, OperationTally, compare, describe_added, describe_missing, take_census

X = f32(64, 64)


def tally(fun: Any, *args: Any) -> OperationTally:
    return take_census(module_of(fun, *args))


@pytest.mark.parametrize(
    ("fn", "counted"),
    [
        (lambda x: jnp.sin(x) * jnp.cos(x) + 1, {"sine": 4096, "cosine": 4096, "multiply": 4096, "add": 4096}),
        (lambda x: lax.fori_loop(0, 7, lambda _, y: jnp.tanh(y @ y), x), {"dot": 7 * 2 * 64**3, "tanh": 7 * 4096}),
        (
            lambda x: lax.while_loop(lambda y: y.sum() < 1e9, lambda y: jnp.exp(y), x),
            {"exponential": 4096, UNKNOWN_LOOP: 1},
        ),
    ],
    ids=["fused", "loop", "loop of unknown length"],
)
def test_operations_count_as_often_as_they_run(fn: Any, counted: dict[str, int]) -> None:
    found = tally(fn, X)

    assert {name: found[name] for name in counted} == counted


def test_of_the_branches_of_a_conditional_the_most_of_each_operation_counts() -> None:
    def few(x: Any) -> Any:
        return x.at[:8].set(jnp.tanh(jnp.sin(x[:8])))

    found = tally(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, few, x), X)

    assert (found["sine"], found["tanh"]) == (4096, 8 * 64)


def test_custom_calls_count_by_target() -> None:
    found = tally(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(64)), X)

    assert [amount for name, amount in found.items() if name.startswith("custom call lapack")] == [1]


def test_what_is_shared_among_threads_counts_as_such() -> None:
    shared = 'v = f32[1024,1024] fusion(), calls=%f, backend_config={"outer_dimension_partitions":["2"]}'
    text = hlo_text(shared, f=["s = f32[1024,1024] sine()"])

    assert take_census(hlo.parse(text)) == {"sine": 2**20, "thread-parallel": 2**20}
    assert "thread-parallel" not in take_census(hlo.parse(text.replace('["2"]', "[]")))


@pytest.mark.parametrize(
    ("timed", "alone", "is_same", "missing", "added"),
    [
        ({"sine": 1000, "add": 500}, {"sine": 1000, "add": 500}, True, "", ""),
        # the counter of the loop around
        ({"sine": 1000, "add": 501, "compare": 1}, {"sine": 1000, "add": 500}, True, "", None),
        ({"sort": 2000, "add": 9}, {"sine": 32768, "sort": 3000, "add": 10}, False, "0 of its 32.8 k sine", ""),
        ({"tanh": 5}, {"sine": 1000, "tanh": 505}, False, "0 of its 1.00 k sine, 5 of its 505 tanh", ""),
        ({"sine": 204800}, {"sine": 4096}, False, "", "205 k instead of 4.10 k sine"),
        # LAPACK wants another layout than XLA has: it stood before the loop, and the timer said 42 % of the time
        ({"copy": 384}, {"copy": 10368}, False, "384 of its 10.4 k copy", ""),
        ({"add": 1000, "copy": 1000}, {"add": 1000}, False, "", "1.00 k instead of 0 copy"),
        ({"add": 1e4}, {"add": 1e4, "custom call lapack_spotrf_ffi": 1}, False, None, ""),
    ],
)
def test_what_a_region_lacks_and_what_it_adds_is_named(timed, alone, is_same, missing, added) -> None:
    difference = compare(OperationTally(timed), OperationTally(alone))

    assert difference.is_same is is_same
    assert missing in (None, describe_missing(difference))
    assert added in (None, describe_added(difference))


def test_what_is_absent_is_told_however_cheap_it_is() -> None:
    difference = compare(OperationTally({"power": 8192}), OperationTally({"power": 8192, "subtract": 8, "iota": 8}))

    assert difference.is_same
    assert set(difference.absent) == {"subtract", "iota"}


def test_a_copy_that_only_the_executable_by_itself_needs_is_no_work_of_it() -> None:
    """An input that is returned as it is. One that is returned the other way round is turned every time."""
    x = jnp.ones((64, 32))

    assert tally(lambda x, y: (jnp.sin(x), y + 0, y), x, x)["copy"] == 0
    assert {"copy", "transpose"} & tally(lambda x: x.T, x).keys()


amounts = st.dictionaries(
    st.sampled_from(["sine", "add", "dot", "sort", "custom call f"]), st.integers(1, 10**9), min_size=1
)


@given(amounts, st.sampled_from([0.0, 0.5, 0.9]))
def test_whatever_loses_a_tenth_of_all_its_operations_is_not_the_same(alone: dict[str, int], left: float) -> None:
    timed = OperationTally({name: amount * left for name, amount in alone.items()})

    difference = compare(timed, OperationTally(alone))

    assert difference.missing == pytest.approx(1 - left)
    assert not difference.is_same


def test_the_timed_body_is_the_inner_one_of_those_that_read_the_clock() -> None:
    stamp = 'd = f32[4] custom-call(), custom_call_target="benchax_stamp"'
    outer = [stamp, "w = f32[4] while(%d), body=%inner"]
    text = hlo_text("v = f32[4] while(), body=%outer", inner=[stamp, "s = f32[4] sine(%d)"], outer=outer)
    module = hlo.parse(text)

    body = census.timed_body(module, "benchax_stamp")

    assert body is not None
    assert body.name == "inner"
    assert take_census(module, body) == {"sine": 4}
    assert census.timed_body(module, "another_clock") is None


def test_the_counted_body_is_that_of_the_loop_whose_trips_are_an_operand() -> None:
    def loop(trips: Any, x: Any) -> Any:
        x = lax.fori_loop(0, 9, lambda _, y: jnp.sin(y), x)
        return lax.fori_loop(0, trips, lambda _, y: jnp.tanh(y @ y), x)

    module = module_of(loop, jnp.int32(3), X)

    body = census.counted_body(module)

    assert body is not None
    assert take_census(module, body)["tanh"] == 4096
    assert "sine" not in take_census(module, body)
