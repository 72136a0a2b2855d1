"""Other precisions: of the float inputs, of matrix products, of the sums in which low precision is accumulated.

bf16, f16, f32, f64 convert the float arrays among the inputs before the timing. So the function computes in that
precision unless it promotes to another one by itself. The variants default, tf32, high and highest ask XLA for a way to
multiply matrices. Devices without such ways ignore them; then the program is the same, and the row says so.

accumulate-f32 traces the function and runs it again operation by operation. Products of bf16 or f16 are requested in
float32 (`preferred_element_type`) and rounded once. Sums use float32, and a loop carries its running sums in float32
(`running_sums.py`). The comparison shows whether it changes anything: some backends accumulate this way anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.functions import Converted, is_float, plain
from benchax.experiments.rewriting import Evaluate, Rewritten
from benchax.experiments.running_sums import LOW, find_running_sums, run_wide
from benchax.experiments.study import Observation
from benchax.experiments.variant import ChangedCase
from benchax.measuring.inputs import make_inputs
from benchax.measuring.prepare import prepare
from benchax.model import Comparison
from benchax.numerics import tolerance
from benchax.program.jaxpr import every_equation
from benchax.results.experiment import Facts
from benchax.specs import long_dtype
from benchax.units import number

PRODUCTS = ("dot_general", "conv_general_dilated")
SUMS = ("reduce_sum", "cumsum")


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
            rounds_to=dtype,
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


@dataclass(frozen=True)
class Accumulated:
    name: str = "accumulate-f32"
    title: str = "products and sums of bf16 and f16 accumulated in float32"
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        unjitted = plain(case, seed)
        traced = prepare(replace(unjitted, jit=True), seed).trace().reach_trace()
        reached = _count_widened(traced.jaxpr)
        if not reached:
            raise NotAvailable("it has no product and no sum of bf16 or f16")
        return ChangedCase(
            replace(unjitted, fn=Rewritten(unjitted.fn, _widen, enters_loops=True)),
            facts=lambda before, now, c: _describe_widening(reached, before, now),
        )


def _widen(eqn: Any, operands: list[Any], evaluate: Evaluate) -> list[Any]:
    if find_running_sums(eqn):
        return run_wide(eqn, operands)
    return _widen_operands(eqn, operands) if _is_low(eqn) else evaluate(eqn)


def _is_low(eqn: Any) -> bool:
    name, out = eqn.primitive.name, eqn.outvars[0].aval if eqn.outvars else None
    return name in (*PRODUCTS, *SUMS) and str(getattr(out, "dtype", "")) in LOW


def _widen_operands(eqn: Any, operands: list[Any]) -> list[Any]:
    dtype = eqn.outvars[0].aval.dtype
    if eqn.primitive.name in SUMS:
        # Sums have no parameter for the type they are accumulated in, as products have.
        return [eqn.primitive.bind(operands[0].astype(jnp.float32), **eqn.params).astype(dtype)]
    params = {**eqn.params, "preferred_element_type": jnp.dtype(jnp.float32)}
    return [eqn.primitive.bind(*operands, **params).astype(dtype)]


def _count_widened(program: Any) -> int:
    """Products, sums and running sums of low precision, loops and branches included."""
    return sum(_is_low(eqn) + len(find_running_sums(eqn)) for eqn in every_equation(program))


def _describe_widening(reached: int, before: Observation, now: Observation) -> Facts:
    facts = [("changed", f"{reached} products and sums")]
    if before.errors and now.errors and None not in (before.errors.median_rel, now.errors.median_rel):
        one, other = (number(e.median_rel or 0.0, 2) for e in (before.errors, now.errors))
        facts.append(("median error", f"{one} before, {other} now"))
    return tuple(facts)


MEMBERS = (
    InputPrecision("bf16", "float inputs in bfloat16"),
    InputPrecision("f16", "float inputs in float16"),
    InputPrecision("f32", "float inputs in float32"),
    InputPrecision("f64", "float inputs in float64, with x64 mode on for both sides"),
    Multiplied("default", "matrix products in the device's default precision", "default"),
    Multiplied("tf32", "matrix products in tensorfloat32, where the device has it", "tensorfloat32"),
    Multiplied("high", "matrix products in high precision (3 passes on a TPU)", "high"),
    Multiplied("highest", "matrix products in the precision of their inputs", "highest", dtype="float32"),
    Accumulated(),
)
