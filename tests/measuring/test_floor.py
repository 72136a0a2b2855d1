"""The floor of a call: as many arguments and results, on the same thread, in turns with the function."""

from __future__ import annotations

import re
from dataclasses import replace

import jax
import jax.numpy as jnp
import pytest

from benchax import bench
from benchax.errors import NotMeasured
from benchax.measuring import engine, stages
from benchax.measuring.stages import call_floor
from benchax.model import CallFloor
from benchax.program.cost import INLINE_FLOPS, inline_flops


@pytest.mark.parametrize("is_inline", [True, False])
def test_the_program_is_on_the_side_of_the_limit_that_was_asked_for(is_inline: bool):
    program = stages._nothing(jax.tree.structure([0, 0]), is_inline)

    compiled = program.lower(jnp.ones(3), {"a": 1.5}).compile()

    assert ((inline_flops(compiled) or 0) < INLINE_FLOPS) is is_inline


def test_it_takes_the_arguments_of_the_function_and_gives_as_many_results(subject, monkeypatch):
    given = []
    made = subject(lambda x, key, n: {"a": x * n, "b": jax.random.normal(key, (3,))}, "f32[4,4]", "key", 2.5)
    monkeypatch.setattr(stages, "_alternate", lambda subject, call: given.append(call()))

    call_floor(made, 1e-5, 10.0)

    assert jax.tree.structure(given[0]) == jax.tree.structure(made.outputs)
    args = jax.tree.map(stages.number_like, made.dynamic)[0]
    assert [jnp.shape(leaf) for leaf in args] == [(), (), ()]
    assert jnp.issubdtype(args[1].dtype, jax.dtypes.prng_key)
    assert args[2] == 2.5


def test_calls_are_in_turns_and_none_is_dropped(subject):
    made = subject(lambda x: x + 1, "f32[8]")

    found = call_floor(made, 1e-5, 8.0)

    assert 3 <= len(found.elapsed_s) == len(found.call_s) <= stages.PAIRS
    assert min(found.elapsed_s) > 0
    assert found.share > 0


def test_a_function_that_does_much_is_far_above_its_floor(subject):
    made = subject(lambda x: jnp.linalg.inv(x + jnp.eye(64)), "f32[64,64]")

    assert min(call_floor(made, 1e-4, 1e6).share for _ in range(3)) < 0.5


def test_donated_arguments_are_renewed(subject):
    made = subject(lambda x: x + 1, "f32[64]", donate=[0])

    assert len(call_floor(made, 1e-5, 8.0).elapsed_s) >= 3


@pytest.mark.parametrize(
    ("call_s", "flops", "why"),
    [
        (0.03, 1e6, "it is for calls below 1.00 ms, and this one takes 30.0 ms"),
        (1e-5, None, "XLA does not say on which thread its program runs"),
    ],
)
def test_what_has_no_floor_says_why(call_s, flops, why, subject):
    with pytest.raises(NotMeasured, match=why):
        call_floor(subject(lambda x: x + 1, "f32[8]"), call_s, flops)


def test_an_unjitted_function_has_no_floor(subject):
    made = subject(lambda x: x + 1, "f32[8]")
    eager = replace(made, program=replace(made.program, kind="eager"))

    with pytest.raises(NotMeasured, match="eagerly, where each operation is a call"):
        call_floor(eager, 1e-5, 8.0)


@pytest.mark.serial  # neighbours disturb it in each of five rows
def test_a_row_holds_its_floor_or_the_reason(bench):
    short = [bench(jnp.tanh, "f32[32768]") for _ in range(5)]
    floors, reasons = [m.stages.call_floor_s for m in short], [m.why_absent("stages.call_floor") for m in short]
    assert any(floors), reasons
    assert [why is None for why in reasons] == [floor is not None for floor in floors]
    assert all("the machine was disturbed" in why for why in reasons if why)  # by a neighbour: no floor is shown then

    eager = bench(lambda x: x + 1, "f32[8]", jit=False)
    assert eager.stages.call_floor_s is None
    assert "eagerly" in eager.why_absent("stages.call_floor")


@pytest.mark.serial
def test_a_small_call_is_said_to_be_bound_by_dispatch(bench):
    """One of ten is enough: a neighbour can disturb the floor, and then nothing is said."""
    found = (bench(lambda x: x + 1, "f32[8]").remarks for _ in range(10))

    assert any(remark.code == "dispatch-bound" for remarks in found for remark in remarks)


def test_a_floor_from_a_disturbed_moment_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row said "call floor 160 µs" above "wall 42 µs"."""
    slow = CallFloor((160e-3,) * 3, (200e-3,) * 3)
    monkeypatch.setattr(engine, "call_floor", lambda *_: slow)

    m = bench(jnp.tanh, "f32[8]", timer="wall", max_time_s=0.02, memory=False, store="off")

    assert m.stages.call_floor is None
    assert re.fullmatch(
        r"calls next to it took 200 ms, and wall reads .*: the machine was disturbed",
        str(m.why_absent("stages.call_floor")),
    )
