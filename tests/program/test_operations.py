"""The operations of a program, beside counts of the whole and by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.program import hlo_module
from benchax.program.counts import counts
from benchax.program.operations import OPAQUE, operations
from benchax.results.operations import HloOperation, HloOperations

LOOP = """HloModule m
%body (c: (s32[], f32[4])) -> (s32[], f32[4]) {
  %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %v = f32[4] get-tuple-element(%c), index=1
  %w = f32[4] add(%v, %v), metadata={op_name="jit(f)/layer/while/body/cell/add" source_file="/u/m.py" source_line=7}
  %t = tanh[4] tanh(%w)
  ROOT %out = (s32[], f32[4]) tuple(%i, %t)
}
%condition (c: (s32[], f32[4])) -> pred[] {
  %c = (s32[], f32[4]) parameter(0)
  %i = s32[] get-tuple-element(%c), index=0
  %n = s32[] constant(3)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}
ENTRY %main (p: f32[4]) -> f32[4] {
  %p = f32[4] parameter(0)
  %zero = s32[] constant(0)
  %start = f32[4] multiply(%p, %p)
  %both = (s32[], f32[4]) tuple(%zero, %start)
  %loop = (s32[], f32[4]) while(%both), condition=%condition, body=%body, TRIPS
  %result = f32[4] get-tuple-element(%loop), index=1
  %cast = f32[4] bitcast(%result)
  ROOT %last = f32[4] subtract(%cast, %start)
}
"""
TRIPS = 'backend_config={"known_trip_count":{"n":"3"}}, metadata={op_name="jit(f)/layer/while"}'


def read(text: str, **limits: int) -> HloOperations:
    found = operations(text, hlo_module.parse(text), **limits)
    assert found is not None
    return found


def by_name(found: HloOperations) -> dict[str, HloOperation]:
    return {one.name: one for one in found.listed}


def compiled(function: Callable[..., Any], *shapes: Any) -> str:
    return jax.jit(function).lower(*shapes).compile().as_text() or ""


def f32(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def test_a_loop_holds_its_body_and_its_condition_with_their_work_of_all_iterations() -> None:
    found = read(LOOP.replace("TRIPS", TRIPS))

    named = by_name(found)
    assert list(named) == ["start", "loop", "last", "less", "w", "t"]
    loop = found.listed.index(named["loop"])
    assert [(one.inside, one.part) for one in (named["loop"], named["w"], named["less"])] == [
        (None, ""), (loop, "body"), (loop, "condition"),
    ]  # fmt: skip
    assert [named[name].flops for name in ("start", "w", "less", "loop")] == [4.0, 12.0, 4.0, 16.0]
    assert (named["t"].transcendentals, named["loop"].remark) == (12.0, "3 iterations")
    assert (named["w"].scope, named["w"].source) == ("layer/cell", "/u/m.py:7")


def test_of_a_loop_of_unknown_length_the_work_is_that_of_one_iteration_and_says_so() -> None:
    named = by_name(read(LOOP.replace("TRIPS", "metadata={}").replace("constant(3)", "parameter(1)")))

    assert named["loop"].remark == "counted once: its trip count is not in the text of the program"
    assert named["w"].flops == 4.0


def test_what_only_groups_values_is_read_through() -> None:
    found = read(LOOP.replace("TRIPS", TRIPS))

    reads = {one.name: [found.listed[place].name for place in one.reads] for one in found.listed}
    assert reads == {"start": [], "loop": ["start"], "last": ["loop", "start"], "less": [], "w": [], "t": ["w"]}


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x, w: jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c.sum()), x, None, 7), (f32(64, 64), f32(64, 64))),
        (lambda x: jax.lax.while_loop(lambda c: c.sum() > 1, lambda c: c / 2, x), (f32(64),)),
        (lambda i, x: jax.lax.cond(i, lambda x: x @ x, jnp.sin, x), (jax.ShapeDtypeStruct((), bool), f32(64, 64))),
        (jax.grad(lambda x, w: jnp.sort(jnp.tanh(x @ w)).sum()), (f32(32, 16), f32(16, 8))),
    ],
    ids=["scan", "while", "cond", "gradient"],
)
def test_the_outermost_ones_add_up_to_the_work_of_the_program(function: Any, shapes: tuple[Any, ...]) -> None:
    text = compiled(function, *shapes)

    outer = [one for one in read(text).listed if one.inside is None]

    known = counts(text)
    assert known is not None
    assert sum(one.flops or 0 for one in outer) == pytest.approx(known.flops)
    assert sum(one.bytes_accessed or 0 for one in outer) == pytest.approx(known.bytes_accessed)


def test_of_a_conditional_the_most_is_counted_and_each_branch_says_its_own() -> None:
    is_less = jax.ShapeDtypeStruct((), bool)
    text = compiled(lambda i, x: jax.lax.cond(i, lambda x: x @ x, jnp.sin, x), is_less, f32(64, 64))

    found = read(text)

    (one,) = (one for one in found.listed if one.opcode == "conditional")
    inside = [each for each in found.listed if each.inside == found.listed.index(one)]
    by_branch = {
        part: sum(each.flops or 0 for each in inside if each.part == part) for part in ("branch 0", "branch 1")
    }
    assert one.remark == "the most that any branch does"
    assert one.flops == max(by_branch.values()) == 2 * 64**3 > min(by_branch.values())


def test_what_nobody_can_look_into_has_no_numbers_and_leaves_none_around_it() -> None:
    text = LOOP.replace("TRIPS", TRIPS).replace(
        "tanh[4] tanh(%w)", 'f32[4] custom-call(%w), custom_call_target="lapack"'
    )

    named = by_name(read(text))

    assert (named["t"].opcode, named["t"].remark) == ("lapack", OPAQUE)
    assert [named[name].flops for name in ("t", "loop", "w", "start")] == [None, None, 12.0, 4.0]


def test_beyond_the_limit_the_innermost_are_left_out_and_counted() -> None:
    found = read(LOOP.replace("TRIPS", TRIPS), most=4)

    assert [one.name for one in found.listed] == ["start", "loop", "last", "less"]
    assert found.left_out == 2
    assert by_name(found)["loop"].flops == 16.0


def test_a_text_without_a_program_has_none() -> None:
    assert operations("HloModule m", hlo_module.parse("HloModule m")) is None
