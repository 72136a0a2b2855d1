"""What a function's two ways to run are made of, in words."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from benchax.case import make_case
from benchax.cli.programs_in_words import describe_program, describe_programs
from benchax.model import CaseId


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


def test_operations_fusions_and_types_are_told() -> None:
    case = make_case(nn.selu, ("i32[1000]",))

    text = describe_program(case)

    assert text.startswith("An eager call starts ")
    assert text.endswith("the compiled program has 1 fusion. It takes i32[1000] and gives f32[1000].")


def test_a_program_that_sorts_has_no_fusion_and_many_inputs_are_counted() -> None:
    case = make_case(lambda a, b, c, d: jax.lax.sort(a), ("f32[64,64]",) * 4)

    assert describe_program(case).endswith(
        "starts 1 operation one by one; the compiled program has no fusion. "
        "It takes f32[64,64], f32[64,64], f32[64,64] and 1 more and gives f32[64,64]."
    )


def test_what_cannot_be_traced_says_so() -> None:
    assert describe_program(make_case(broken, ("f32[8]",))).startswith(
        "Its operations and fusions are not known, because "
    )


def test_of_several_functions_each_is_named() -> None:
    cases = {CaseId(name): make_case(fn, ("f32[8]",)) for name, fn in (("relu", jax.nn.relu), ("sin", jnp.sin))}

    assert [text.partition(": ")[0] for text in describe_programs(cases)] == ["relu", "sin"]
