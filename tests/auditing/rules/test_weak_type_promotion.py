"""Types of scalars that change those of arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "weak-type-promotion"


def doubled(a: Any) -> Any:
    return a * np.float32(2.0)


@pytest.mark.parametrize("in_loop", [False, True])
def test_a_strongly_typed_scalar_that_widens_an_array_is_named_with_its_line(ask_about: Any, in_loop: bool) -> None:
    def looped(a: Any) -> Any:
        return jax.lax.fori_loop(0, 3, lambda i, b: doubled(b).astype(b.dtype), a)

    finding = ask_about(ID, looped if in_loop else doubled, "bf16[100]").one

    assert finding.title == "a scalar widens bf16[100] to float32"
    assert finding.where == (__file__, doubled.__code__.co_firstlineno + 1)
    assert finding.seen[1] == "200 B more are computed with, as traced"


def test_a_scalar_among_the_inputs_counts_as_well(ask_about: Any) -> None:
    assert ask_about(ID, lambda a, s: a * s, "bf16[100]", "f32[]").outcome == "finding"


@pytest.mark.parametrize("other", [2.0, jnp.bfloat16(2.0), "f32[100]"])
def test_numbers_scalars_of_its_type_and_wide_arrays_are_fine(ask_about: Any, other: Any) -> None:
    assert ask_about(ID, lambda a, b: a * b, "bf16[100]", other).findings == []


@pytest.mark.parametrize(
    "widen", [lambda a: a.astype(jnp.float32), lambda a: jnp.asarray(a, jnp.float32)], ids=["astype", "asarray"]
)
def test_an_array_that_its_author_widens_is_fine(ask_about: Any, widen: Any) -> None:
    assert ask_about(ID, lambda a: widen(a) * np.float32(2.0) * 3.0, "bf16[100]").findings == []


def test_an_output_that_would_compile_again_when_fed_back_is_an_info(ask_about: Any) -> None:
    finding = ask_about(ID, lambda a: jnp.where(a > 0, 1.0, 2.0), "f32[]").one

    assert finding.severity == "info"
    assert finding.seen == ("result is a weakly typed f32[], args[0] a strongly typed one",)


def test_in_a_program_what_is_compiled_again_is_told_by_another_rule(ask_about: Any) -> None:
    parts = {"why_not_called": "it belongs to a program"}

    assert ask_about(ID, lambda a: jnp.where(a > 0, 1.0, 2.0), "f32[]", parts=parts).outcome == "fine"
