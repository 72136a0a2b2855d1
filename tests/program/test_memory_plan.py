"""The compiler's plan for memory, against sizes that can be worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.model import Memory
from benchax.program.memory_plan import memory_plan

X = jnp.ones((128, 128))
BYTES = X.nbytes
CAPTURED = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)


def compiled(fun: Any, *args: Any, **options: Any) -> jax.stages.Compiled:
    return jax.jit(fun, **options).lower(*args).compile()


def test_the_peak_counts_arguments_outputs_and_temporaries():
    """The temporary is in our sum, and not in the compiler's own peak on CPU."""
    plan = memory_plan(compiled(lambda x: (x @ x) @ x, X))

    assert (plan.argument_bytes, plan.output_bytes, plan.temp_bytes, plan.alias_bytes) == (BYTES, BYTES, BYTES, 0)
    assert plan.predicted_peak_bytes == 3 * BYTES
    assert plan.compiler_peak_bytes in (None, 2 * BYTES)


def test_a_donated_argument_is_counted_once():
    plan = memory_plan(compiled(lambda x: x + 1, X, donate_argnums=0))

    assert plan.alias_bytes == BYTES
    assert plan.predicted_peak_bytes == pytest.approx(BYTES, abs=64)


def test_constants_are_part_of_the_peak():
    plan = memory_plan(compiled(lambda x: x @ CAPTURED, X), captured_bytes=BYTES)

    assert plan.constant_bytes == BYTES
    assert plan.captured_bytes == BYTES
    assert plan.predicted_peak_bytes == 3 * BYTES


def test_the_text_may_be_handed_over():
    program = compiled(lambda x: x @ CAPTURED, X)

    assert memory_plan(program, hlo_text=program.as_text()) == memory_plan(program)
    assert memory_plan(program, hlo_text="%c = f32[2]{0} constant({1, 2})").constant_bytes == 8


def test_code_of_zero_bytes_is_code_that_was_not_counted():
    assert memory_plan(compiled(lambda x: x + 1, X)).code_bytes != 0


def test_only_the_plan_is_filled_in():
    plan = memory_plan(compiled(lambda x: x + 1, X))

    assert (plan.compiled_rise_bytes, plan.eager_rise_bytes, plan.method) == (None, None, None)


@pytest.mark.parametrize("found", [None, NotImplementedError(), RuntimeError("UNIMPLEMENTED")])
def test_a_back_end_without_a_plan_leaves_it_unknown(found: Any):
    def analysis() -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    program: Any = SimpleNamespace(memory_analysis=analysis, as_text=lambda: None)

    assert memory_plan(program, captured_bytes=3) == Memory(captured_bytes=3)


def test_without_the_text_there_is_no_peak_to_predict():
    """It would be too low by the constants."""
    program: Any = SimpleNamespace(memory_analysis=compiled(lambda x: x, X).memory_analysis, as_text=lambda: None)

    plan = memory_plan(program)

    assert plan.argument_bytes == BYTES
    assert (plan.constant_bytes, plan.predicted_peak_bytes) == (None, None)
