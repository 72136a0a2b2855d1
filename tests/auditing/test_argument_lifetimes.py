"""`auditing/argument_lifetimes.py`: real calls, as JAX tells of them, and a real program's audit."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import shows_calls

from benchax.auditing.argument_lifetimes import ArgumentLifetimes
from benchax.auditing.audited_program import audit_program
from benchax.auditing.recorded_functions import RecordedFunction
from benchax.results.audit import Finding
from benchax.watching.functions import FunctionLocation
from benchax.watching.transfers import watch_transfers


def plain_step(state: Any, data: Any) -> Any:
    return {"w": state["w"] * 0.5 + data, "n": state["n"] + 1}


@shows_calls
def test_what_a_loop_rebinds_is_gone_at_the_next_call_and_its_data_are_not() -> None:
    lifetimes, step = ArgumentLifetimes(), jax.jit(plain_step)
    state, data = {"w": jnp.ones(4), "n": jnp.ones(())}, jnp.ones(4)

    with watch_transfers(lifetimes.note_call):
        for _ in range(3):
            state = step(state, data)

    # In JAX's order: state["n"], state["w"], data.
    assert lifetimes.held(plain_step) == {2}


@shows_calls
def test_of_a_function_that_is_called_once_nothing_is_known() -> None:
    lifetimes = ArgumentLifetimes()
    data = jnp.ones(4)

    with watch_transfers(lifetimes.note_call):
        jax.jit(plain_step)({"w": data, "n": data}, data)

    assert lifetimes.held(plain_step) == frozenset()


def test_what_is_let_go_once_may_be_let_go() -> None:
    lifetimes = ArgumentLifetimes()
    arrays = [jnp.ones(3), jnp.ones(3)]
    lifetimes.note_call(plain_step, arrays)
    lifetimes.note_call(plain_step, arrays)
    arrays[0] = jnp.zeros(3)
    lifetimes.note_call(plain_step, arrays)

    assert lifetimes.held(plain_step) == {1}


class Unhashable:
    __hash__ = None  # type: ignore[assignment]

    def __call__(self, x: Any) -> Any:
        return x


def test_a_function_that_cannot_be_remembered_is_no_error() -> None:
    lifetimes, fun = ArgumentLifetimes(), Unhashable()
    for _ in range(2):
        lifetimes.note_call(fun, [jnp.ones(3)])

    assert lifetimes.held(fun) == frozenset()


@pytest.mark.parametrize(
    ("held", "arguments"),
    [({0}, {0}), ({2}, {2}), ({3}, {"rate"}), ({1, 2}, {0, 2}), ({4}, set())],
    ids=["leaf of the first", "after a static one", "by name", "two", "more leaves than arguments"],
)
def test_leaves_are_told_as_the_arguments_that_they_belong_to(held: set[int], arguments: set[int | str]) -> None:
    leaf = jax.ShapeDtypeStruct((3,), jnp.float32)
    location = FunctionLocation("step", "train.py:1", is_eager=False)
    one = RecordedFunction(
        location, plain_step, ({"a": leaf, "b": leaf}, 7, leaf), {"rate": leaf}, {"static_argnums": (1,)}, 0.1,
        frozenset(held),
    )  # fmt: skip

    assert one.held_arguments == arguments


PROGRAM = """
import jax, jax.numpy as jnp

@jax.jit
def mix(p, q):
    return 0.9 * p + 0.1 * q

@jax.jit
def decay(p, q):
    return 0.9 * p + 0.1 * q + 1

P = jnp.ones((512, 512))
state = P * 2
for _ in range(20):
    mixed = mix(P, P)
    state = decay(P, state)
print(float(mixed[0, 0]), float(state[0, 0]))
"""


@shows_calls
def test_a_program_is_not_told_to_donate_what_it_needs_again(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        found: list[Finding] = [
            f for f in audit_program([sys.executable, "train.py"]).audit.findings if f.rule == "donation-possible"
        ]

    assert [(finding.where and finding.where[1], finding.seen[0]) for finding in found] == [
        (8, "args[1] f32[512,512] → result, 1.00 MiB")  # the line of its jit
    ]
    assert "(arguments 1)" in found[0].advice
