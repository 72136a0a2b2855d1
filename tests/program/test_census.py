"""What a program executes, counted; and what a timed region lacks or adds beside the function by itself."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import pytest
from compiled_texts import f32, module_of
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from benchax.program import census, hlo
from benchax.program.census import UNKNOWN_LOOP, OperationTally, compare, describe_added, describe_missing, take_census

X = f32(64, 64)


def tally(fun: Any, *args: Any) -> OperationTally:
    return take_census(module_of(fun, *args))


def test_operations_inside_fusions_are_counted() -> None:
    found = tally(lambda x: jnp.sin(x) * jnp.cos(x) + 1, X)

    assert found == {"sine": 4096, "cosine": 4096, "multiply": 4096, "add": 4096}


def test_the_body_of_a_loop_counts_as_often_as_it_runs() -> None:
    found = tally(lambda x: lax.fori_loop(0, 7, lambda _, y: jnp.tanh(y @ y), x), X)

    assert (found["dot"], found["tanh"]) == (7 * 2 * 64**3, 7 * 4096)


def test_a_loop_whose_length_the_data_decide_counts_once_and_as_a_loop() -> None:
    found = tally(lambda x: lax.while_loop(lambda y: y.sum() < 1e9, lambda y: jnp.exp(y), x), X)

    assert (found["exponential"], found[UNKNOWN_LOOP]) == (4096, 1)


def test_of_the_branches_of_a_conditional_the_most_of_each_operation_counts() -> None:
    def few(x: Any) -> Any:
        return x.at[:8].set(jnp.tanh(jnp.sin(x[:8])))

    found = tally(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, few, x), X)

    assert (found["sine"], found["tanh"]) == (4096, 8 * 64)


def test_custom_calls_count_by_target() -> None:
    found = tally(lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(64)), X)

    assert [amount for name, amount in found.items() if name.startswith("custom call lapack")] == [1]


def test_what_is_shared_among_threads_counts_as_such() -> None:
    text = """HloModule m

%f (p: f32[1024,1024]) -> f32[1024,1024] {
  %p = f32[1024,1024]{1,0} parameter(0)
  ROOT %s = f32[1024,1024]{1,0} sine(%p)
}

ENTRY %main (x: f32[1024,1024]) -> f32[1024,1024] {
  %x = f32[1024,1024]{1,0} parameter(0)
  ROOT %v = f32[1024,1024]{1,0} fusion(%x), kind=kLoop, calls=%f, backend_config={"outer_dimension_partitions":["2"]}
}
"""

    assert take_census(hlo.parse(text)) == {"sine": 2**20, "thread-parallel": 2**20}
    assert "thread-parallel" not in take_census(hlo.parse(text.replace('["2"]', "[]")))


def test_equal_work_is_the_same() -> None:
    one = OperationTally({"sine": 1000, "add": 500})

    assert compare(one, one).is_same
    assert compare(one, one).operations == ()


def test_the_counter_of_the_loop_around_is_no_difference() -> None:
    assert compare(
        OperationTally({"sine": 1000, "add": 501, "compare": 1}), OperationTally({"sine": 1000, "add": 500})
    ).is_same


def test_work_that_was_moved_away_is_named() -> None:
    difference = compare(
        OperationTally({"sort": 2000, "add": 9}), OperationTally({"sine": 32768, "sort": 3000, "add": 10})
    )

    assert not difference.is_same
    assert describe_missing(difference) == "0 of its 32.8 k sine"
    assert describe_missing(compare(OperationTally({"tanh": 5}), OperationTally({"sine": 1000, "tanh": 505}))) == (
        "0 of its 1.00 k sine, 5 of its 505 tanh"
    )


def test_work_that_is_done_beyond_the_function_is_named() -> None:
    difference = compare(OperationTally({"sine": 204800}), OperationTally({"sine": 4096}))

    assert not difference.is_same
    assert describe_added(difference) == "205 k instead of 4.10 k sine"


def test_a_copy_that_only_the_executable_by_itself_needs_is_no_work_of_it() -> None:
    """An input that is returned as it is. One that is returned the other way round is turned every time."""
    x = jnp.ones((64, 32))

    assert tally(lambda x, y: (jnp.sin(x), y + 0, y), x, x)["copy"] == 0
    assert {"copy", "transpose"} & tally(lambda x: x.T, x).keys()


def test_a_copy_that_is_made_once_for_all_is_missing() -> None:
    """LAPACK wants another layout than XLA has: it stood before the loop, and the timer said 42 % of the time."""
    difference = compare(OperationTally({"copy": 384}), OperationTally({"copy": 10368}))

    assert not difference.is_same
    assert describe_missing(difference) == "384 of its 10.4 k copy"


def test_what_is_absent_is_told_however_cheap_it_is() -> None:
    difference = compare(OperationTally({"power": 8192}), OperationTally({"power": 8192, "subtract": 8, "iota": 8}))

    assert difference.is_same
    assert set(difference.absent) == {"subtract", "iota"}


def test_a_copy_that_only_the_program_around_needs_is_added_work() -> None:
    assert not compare(OperationTally({"add": 1000, "copy": 1000}), OperationTally({"add": 1000})).is_same


def test_a_custom_call_that_is_missing_is_a_difference_however_cheap() -> None:
    assert not compare(
        OperationTally({"add": 1e4}), OperationTally({"add": 1e4, "custom call lapack_spotrf_ffi": 1})
    ).is_same


amounts = st.dictionaries(
    st.sampled_from(["sine", "add", "dot", "sort", "custom call f"]), st.integers(1, 10**9), min_size=1
)


@given(amounts, st.sampled_from([0.0, 0.5, 0.9]))
def test_whatever_loses_a_tenth_of_all_its_operations_is_not_the_same(alone: dict[str, int], left: float) -> None:
    timed = OperationTally({name: amount * left for name, amount in alone.items()})

    difference = compare(timed, OperationTally(alone))

    assert difference.missing == pytest.approx(1 - left)
    assert not difference.is_same


@given(amounts)
def test_nothing_is_missing_where_the_region_does_all(alone: dict[str, int]) -> None:
    assert compare(OperationTally(alone).plus(OperationTally({"add": 3})), OperationTally(alone)).is_same


def test_the_timed_body_is_the_inner_one_of_those_that_read_the_clock() -> None:
    text = """HloModule m

%stamp_body (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  %c = (f32[4]{0}, u32[2]{0}) custom-call(%p), custom_call_target="benchax_stamp"
  %g = f32[4]{0} get-tuple-element(%c), index=0
  ROOT %s = f32[4]{0} sine(%g)
}

%cond (q: f32[4]) -> pred[] {
  %q = f32[4]{0} parameter(0)
  ROOT %t = pred[] constant(true)
}

%outer_body (r: f32[4]) -> f32[4] {
  %r = f32[4]{0} parameter(0)
  %d = (f32[4]{0}, u32[2]{0}) custom-call(%r), custom_call_target="benchax_stamp"
  %h = f32[4]{0} get-tuple-element(%d), index=0
  ROOT %w = f32[4]{0} while(%h), condition=%cond, body=%stamp_body
}

ENTRY %main (x: f32[4]) -> f32[4] {
  %x = f32[4]{0} parameter(0)
  ROOT %v = f32[4]{0} while(%x), condition=%cond, body=%outer_body
}
"""
    module = hlo.parse(text)

    body = census.timed_body(module, "benchax_stamp")

    assert body is not None
    assert body.name == "stamp_body"
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
