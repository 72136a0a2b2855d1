"""How often loops turn: as XLA wrote it down, and, where it did not, as the loop itself says."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchax.program import hlo_module, trip_counts

X = jax.ShapeDtypeStruct((8, 8), jnp.float32)


def counting(start: int, step: int, goes_on: Any) -> Any:
    def run(x: Any) -> Any:
        return lax.while_loop(lambda c: goes_on(c[0]), lambda c: (c[0] + step, c[1] @ x), (jnp.int32(start), x))[1]

    return run


# (turns by XLA's proof, turns by the counter alone)
CASES = {
    "upwards": (counting(0, 1, lambda i: i < 10), (10, 10)),
    "in steps": (counting(4, 3, lambda i: i <= 100), (33, 33)),
    "downwards": (counting(100, -3, lambda i: i > 0), (34, 34)),
    "downwards, end included": (counting(9, -3, lambda i: i >= 0), (4, 4)),
    "number on the left": (counting(0, 2, lambda i: lax.gt(jnp.int32(7), i)), (4, 4)),
    "inside of a call": (lambda x: lax.scan(lambda c, y: (c * y, c), x[0], x, reverse=True), (8, None)),
    "no end in the text": (lambda x: lax.fori_loop(0, x[0, 0].astype(int), lambda _, c: c @ x, x), (None, None)),
    "decided by the data": (lambda x: lax.while_loop(lambda c: c.sum() < 3, lambda c: c * 2, x), (None, None)),
    "doubling": (
        lambda x: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] * 2, c[1] @ x), (jnp.int32(1), x)),
        (4, None),
    ),
}


@functools.cache
def text_of(name: str) -> str:
    return jax.jit(CASES[name][0]).lower(X).compile().as_text() or ""


def without_knowledge(text: str) -> str:
    assert text.count("known_trip_count") <= 1
    return text.replace("known_trip_count", "withheld")


@pytest.mark.parametrize("name", CASES)
def test_turns_are_those_that_xla_proved(name: str) -> None:
    (found,) = trip_counts.find_loops(hlo_module.parse(text_of(name)))

    assert found.trips == CASES[name][1][0]
    assert found.op_name.endswith("while")


@pytest.mark.parametrize("name", CASES)
def test_without_a_proof_a_counter_is_followed(name: str) -> None:
    (found,) = trip_counts.find_loops(hlo_module.parse(without_knowledge(text_of(name))))

    assert found.trips == CASES[name][1][1]
    assert found.trips_from == (
        "its trip count is not in the text of the program"
        if found.trips is None
        else "its condition compares a counter with a constant"
    )


HAND_MADE = """HloModule m

%body (c: (s32[], f32[])) -> (s32[], f32[]) {
  %c = (s32[], f32[]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %x = f32[] get-tuple-element(%c), index=1
  %one = s32[] constant(STEP)
  %next = s32[] add(%i, %one)
  ROOT %t = (s32[], f32[]) tuple(%next, %x)
}

%condition (d: (s32[], f32[])) -> pred[] {
  %d = (s32[], f32[]) parameter(0)
  %j = s32[] get-tuple-element(%d), index=0
  %end = s32[] constant(END)
  ROOT %less = pred[] compare(%j, %end), direction=LT
}

ENTRY %main (a: f32[]) -> (s32[], f32[]) {
  %a = f32[] parameter(0)
  %start = s32[] constant(START)
  %carry = (s32[], f32[]) tuple(%start, %a)
  ROOT %loop = (s32[], f32[]) while(%carry), condition=%condition, body=%body
}
"""


@pytest.mark.parametrize(
    ("start", "end", "step", "trips"),
    [(0, 5, 1, 5), (5, 5, 1, 0), (7, 5, 1, 0), (-3, 4, 2, 4), (0, 5, 0, None), (0, 5, -1, None)],
)
def test_a_loop_that_does_not_begin_turns_0_times_and_one_that_never_ends_is_not_known(
    start: int, end: int, step: int, trips: int | None
) -> None:
    text = HAND_MADE.replace("START", str(start)).replace("END", str(end)).replace("STEP", str(step))

    (found,) = trip_counts.find_loops(hlo_module.parse(text))

    assert found.trips == trips


def test_a_comparison_may_have_its_number_on_the_left() -> None:
    text = HAND_MADE.replace("compare(%j, %end), direction=LT", "compare(%end, %j), direction=GE")
    text = text.replace("START", "0").replace("END", "5").replace("STEP", "2")

    (found,) = trip_counts.find_loops(hlo_module.parse(text))

    assert found.trips == 3
