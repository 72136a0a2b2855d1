"""Precisions of inputs and of matrix products."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.variants import VARIANTS
from benchax.measuring.inputs import make_inputs


@pytest.mark.parametrize(("name", "dtype"), [("bf16", jnp.bfloat16), ("f16", jnp.float16)])
def test_float_inputs_are_converted_before_anything_runs(name: str, dtype) -> None:
    case = make_case(lambda x, n, axis: x.sum(axis) + n, ({"w": "f32[2,3]"}, "i32[]", 0), static=(2,))

    changed = VARIANTS[name].change(case)

    inputs = make_inputs(changed.case, 0)
    assert inputs.args[0]["w"].dtype == dtype
    assert inputs.args[1].dtype == jnp.int32
    assert inputs.args[2] == 0


@pytest.mark.parametrize(
    ("name", "spec", "kind", "why"),
    [
        ("bf16", "i32[4]", NotAvailable, "no input is a float array"),
        ("f32", "f32[4]", NotMeasured, "f32 as they are"),
    ],
)
def test_where_there_is_nothing_to_convert_it_says_so(name, spec, kind, why) -> None:
    with pytest.raises(kind, match=why):
        VARIANTS[name].change(make_case(abs, (spec,)))


def test_the_precision_of_products_is_part_of_the_program_and_of_nothing_else() -> None:
    changed = VARIANTS["highest"].change(make_case(lambda x: x @ x, ("f32[4,4]",)))

    traced = str(jax.make_jaxpr(changed.case.fn)(jnp.ones((4, 4))))

    assert "HIGHEST" in traced
    assert jax.config.jax_default_matmul_precision is None
