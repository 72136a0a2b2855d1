"""What became of each donated argument, and why."""

from __future__ import annotations

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.program import arguments, hlo_module
from benchax.program.donation import donation
from benchax.results.inspection import Donation


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def donated(fun: Any, *args: Any, donate: tuple[int, ...], kept: bool = True) -> Donation:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Some donated buffers were not usable")
        traced = jax.jit(fun, donate_argnums=donate).trace(*args)
        compiled = traced.lower().compile()
    module = hlo_module.parse(compiled.as_text() or "")
    leaves = arguments.inputs(traced)
    assert module.entry is not None
    parameters = sum(each.opcode == "parameter" for each in module.entry.instructions)
    taken = arguments.find_kept(compiled, leaves, parameters) if kept else None
    return donation(module, leaves, arguments.outputs(traced), taken)


def test_an_output_takes_over_a_donated_argument() -> None:
    found = donated(lambda s, x: {"new": s["w"] + x, "old": x}, {"w": f32(8)}, f32(8), donate=(0,))

    (argument,) = found.arguments
    assert (argument.path, argument.is_aliased, argument.output) == ("args[0]['w']", True, "result['new']")
    assert (found.asked_bytes, found.aliased_bytes) == (32, 32)


@pytest.mark.parametrize(
    ("fun", "why"),
    [
        (lambda x, y: y * 2, "the program does not use it"),
        (lambda x, y: x[:3] + y[0], r"no output has its shape and dtype, f32\[8\]"),
        (lambda x, y: x > y[0], "no output has its shape and dtype"),
    ],
)
def test_an_argument_that_no_output_took_over_says_why(fun: Any, why: str) -> None:
    found = donated(fun, f32(8), f32(5), donate=(0,))

    assert [a.is_aliased for a in found.arguments] == [False]
    assert found.arguments[0].why_not.startswith(why.replace("\\", ""))
    assert found.aliased_bytes == 0


def test_two_arguments_for_one_output_name_the_one_that_got_it() -> None:
    found = donated(lambda x, y: x + y, f32(8), f32(8), donate=(0, 1))

    (winner,) = [a for a in found.arguments if a.is_aliased]
    (loser,) = [a for a in found.arguments if not a.is_aliased]
    assert loser.why_not == f"every output of its shape and dtype, f32[8], takes over another argument: {winner.path}"


def test_numbers_of_parameters_are_mapped_back_over_dropped_arguments() -> None:
    """Parameter 0 of the program is the third argument."""
    found = donated(lambda a, b, c: c + 1, f32(8), f32(8), f32(8), donate=(0, 2))

    assert [(a.path, a.is_aliased) for a in found.arguments] == [("args[0]", False), ("args[2]", True)]


def test_where_it_is_not_known_what_was_dropped_nothing_is_claimed() -> None:
    found = donated(lambda a, b: b + 1, f32(8), f32(8), donate=(0, 1), kept=False)

    assert [a.is_aliased for a in found.arguments] == [None, None]
    assert found.aliased_bytes is None
    assert "does not tell which it dropped" in found.arguments[0].why_not


def test_nothing_donated_is_an_empty_list() -> None:
    assert donated(lambda x: x + 1, f32(8), donate=()) == Donation((), possible_bytes=32)


def test_what_could_be_donated_is_what_has_an_output_like_it_that_no_argument_is_for() -> None:
    def fun(a: Any, b: Any, c: Any, d: Any) -> Any:
        return a + 1, b + c + d[:8]

    # Two outputs like a, b and c, of which one takes the memory of a donated argument; none is like d.
    given = (f32(8), f32(8), f32(8), f32(9))
    assert donated(fun, *given, donate=()).possible_bytes == 64
    assert donated(fun, *given, donate=(0,)).possible_bytes == 32


class NoExecutable:
    """Stands for a Compiled of a JAX that hides what it dropped."""


def test_kept_arguments_are_guessed_only_where_all_are_kept() -> None:
    leaves = [arguments.ArgumentLeaf(f"args[{i}]", (), jnp.dtype("float32")) for i in range(3)]
    hidden: Any = NoExecutable()

    assert arguments.find_kept(hidden, leaves, parameters=3) == (0, 1, 2)
    assert arguments.find_kept(hidden, leaves, parameters=2) is None
