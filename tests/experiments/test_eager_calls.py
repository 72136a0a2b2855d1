"""What a function's two ways to run are made of, in words."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from comparisons_by_hand import compared
from measurement_strategies import measured

from benchax.case import make_case
from benchax.experiments.experiment import describe_break_evens, describe_program, describe_programs
from benchax.model import CaseId, Samples, Stages


def broken(x: Any) -> Any:
    raise ValueError("it is broken")


@pytest.mark.parametrize(
    ("fn", "specs", "start", "end"),
    [
        (
            nn.selu,
            ("i32[1000]",),
            "An eager call starts ",
            "the compiled program has 1 fusion. It takes i32[1000] and gives f32[1000].",
        ),
        (
            lambda a, b, c, d: jax.lax.sort(a),
            ("f32[64,64]",) * 4,
            "An eager call starts 1 operation one by one; the compiled program has no fusion. ",
            "It takes f32[64,64], f32[64,64], f32[64,64] and 1 more and gives f32[64,64].",
        ),
        (broken, ("f32[8]",), "Its operations and fusions are not known, because ", ""),
    ],
)
def test_operations_fusions_and_types_are_told(fn: Any, specs: Any, start: str, end: str) -> None:
    text = describe_program(make_case(fn, specs))

    assert text.startswith(start)
    assert text.endswith(end)


def test_of_several_functions_each_is_named() -> None:
    cases = [make_case(fn, ("f32[8]",), name=name) for name, fn in (("relu", jax.nn.relu), ("sin", jnp.sin))]

    assert [text.partition(": ")[0] for text in describe_programs(cases)] == ["relu", "sin"]


def test_with_several_functions_each_sentence_names_its_case() -> None:
    """Brackets included, which a renderer might take for markup."""
    samples = (Samples("wall", 1, (2.0,) * 6),), (Samples("wall", 1, (1.0,) * 6),)
    stages = Stages(lower_s=1.0, compile_s=1.0)
    rows = []
    for n in (4, 8):
        eager = replace(measured("f", n=n), samples=samples[0])
        rows.append(replace(eager, case=replace(eager.case, variant="eager")))
        rows.append(replace(eager, samples=samples[1], stages=stages))

    jitted = [row.case for row in rows if row.case.variant != "eager"]
    slow = compared(0, None, why="timeout in rounds: it took too long")
    sentences = describe_break_evens(rows, dict(zip(jitted, [compared(0, 0.5), slow], strict=True)))

    assert [sentence.partition(": ")[0] for sentence in sentences] == ["f[n=4]", "f[n=8]"]
    assert sentences[0].partition(": ")[2].startswith("Compiling (2.00 s) pays from 400,000 calls on ")
    assert sentences[1].partition(": ")[2] == (
        "Whether compiling (2.00 s) pays was not measured, because timeout in rounds: it took too long"
    )


def test_without_a_pair_there_is_no_sentence() -> None:
    alone = replace(measured("f"), case=CaseId("f", (), "eager"))

    assert describe_break_evens([alone, measured("g")], {}) == []
