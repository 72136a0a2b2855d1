"""Other precisions: of the float inputs, or of matrix products.

bf16, f16, f32, f64 convert the float arrays among the inputs before anything is timed, so that the function computes
in that precision as far as it does not promote to another by itself. The others ask XLA for a way to multiply matrices,
which devices without such ways ignore; then the compiled program is the same, and the row says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.base import ChangedCase, Facts, Observation
from benchax.experiments.functions import Converted, is_float, plain
from benchax.measuring.inputs import make_inputs
from benchax.model import Comparison
from benchax.numerics import tolerance
from benchax.specs import long_dtype


@dataclass(frozen=True)
class InputPrecision:
    """Float inputs in `name`, a short dtype."""

    name: str
    title: str
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        dtype = long_dtype(self.name)
        unjitted = plain(case, seed)
        inputs = make_inputs(unjitted, seed)
        dynamic = [v for i, v in enumerate(inputs.args) if i not in inputs.static]
        dynamic += [v for k, v in inputs.kwargs.items() if k not in inputs.static]
        floats = [leaf for leaf in jax.tree.leaves(dynamic) if is_float(leaf)]
        if not floats:
            raise NotAvailable("no input is a float array")
        if all(leaf.dtype == dtype for leaf in floats):
            raise NotMeasured(f"all float inputs are {self.name} as they are")
        return ChangedCase(
            replace(unjitted, inputs=Converted(unjitted, seed, dtype)),
            tolerance=tolerance(dtype),
            facts=_facts,
            family="inputs",
            settings={"jax_enable_x64": True} if self.name == "f64" else {},
        )


def _facts(before: Observation, now: Observation, c: Comparison | None) -> Facts:
    return (("inputs", now.signature), ("outputs", now.outputs))


@dataclass(frozen=True)
class Multiplied:
    """Matrix products as `jax.default_matmul_precision` has them."""

    name: str
    title: str
    precision: str
    needs: str = ""
    dtype: str = "bfloat16"
    """The coarsest that this permits, on any device."""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        unjitted = plain(case, seed)
        return ChangedCase(
            replace(unjitted, fn=_With(unjitted.fn, self.precision)), tolerance=tolerance(self.dtype), family="matmul"
        )


@dataclass(frozen=True)
class _With:
    """Only while it is traced: it is part of the program then."""

    fn: Callable[..., Any]
    precision: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with jax.default_matmul_precision(self.precision):
            return self.fn(*args, **kwargs)


MEMBERS = (
    InputPrecision("bf16", "float inputs in bfloat16"),
    InputPrecision("f16", "float inputs in float16"),
    InputPrecision("f32", "float inputs in float32"),
    InputPrecision("f64", "float inputs in float64, with x64 mode on for both sides"),
    Multiplied("default", "matrix products in the device's default precision", "default"),
    Multiplied("tf32", "matrix products in tensorfloat32, where the device has it", "tensorfloat32"),
    Multiplied("high", "matrix products in high precision (3 passes on a TPU)", "high"),
    Multiplied("highest", "matrix products in the precision of their inputs", "highest", dtype="float32"),
)
