"""Mixed precision (Micikevicius et al. 2018): products in bf16 or f16, and float32 for everything else.

Parameters, state, sums and the operations between the products stay unchanged. The operands of each matrix product and
convolution are rounded, and accumulated in float32. So a training step keeps its float32 weights, and its gradients
come out in float32. Unlike `bf16`, which converts the inputs, it does not lose an optimizer's small updates.

f16 has no room for small gradients (below 6e-8 they are 0). If the function takes gradients during tracing
(`gradient_calls.py`), the loss is first multiplied by a power of two, and the gradients are divided by it afterwards.
In contrast, bf16 has the exponents of float32 and needs no scale. An option sets the scale: mixed-f16=1024; 1 switches
it off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.functions import plain
from benchax.experiments.gradient_calls import WithGradients, takes_gradients
from benchax.experiments.rewriting import Evaluate, Rewritten
from benchax.experiments.study import Observation
from benchax.experiments.variant import ChangedCase
from benchax.measuring.inputs import make_inputs
from benchax.measuring.prepare import prepare
from benchax.numerics import tolerance
from benchax.program.jaxpr import every_equation
from benchax.results.experiment import Facts
from benchax.specs import long_dtype

PRODUCTS = ("dot_general", "conv_general_dilated")
USUAL_SCALE = 2**10
"""Far below 65,504, above which f16 has no numbers, for a loss of some units."""
LARGEST_SCALE = 2**24


@dataclass(frozen=True)
class Mixed:
    """Products of float32 in `short`, a short dtype of 16 bits."""

    name: str
    title: str
    short: str
    scales: bool = False
    needs: str = ""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        scale = self._read_scale(given)
        unjitted = plain(case, seed)
        traced = prepare(replace(unjitted, jit=True), seed).trace().reach_trace()
        reached = sum(map(_is_product, every_equation(traced.jaxpr)))
        if not reached:
            raise NotAvailable("it has no matrix product and no convolution in float32")
        dtype = long_dtype(self.short)
        fn = unjitted.fn
        is_scaled = scale > 1 and takes_gradients(fn, make_inputs(unjitted, seed))
        if is_scaled:
            fn = WithGradients(fn, ScaledLoss(scale))
        facts = [("changed", f"{reached} products, accumulated in float32; all else is as it was")]
        facts += [("loss scale", str(scale))] if is_scaled else []
        return ChangedCase(
            replace(unjitted, fn=Rewritten(fn, Lowered(dtype), enters_loops=True)),
            tolerance=tolerance(dtype),
            facts=lambda before, now, c: _facts(tuple(facts), before, now),
            family="inputs",
            rounds_to=dtype,
        )

    def _read_scale(self, given: Any) -> int:
        """Raises `UsageError` for what is no power of two."""
        if given is None:
            return USUAL_SCALE if self.scales else 1
        text = str(given).strip()
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
        if not self.scales or not 1 <= number <= LARGEST_SCALE or number & (number - 1):
            expected = f"a power of two up to {LARGEST_SCALE}: the loss scale, 1 for none" if self.scales else "nothing"
            raise UsageError(f"{self.name}={given!r}", expected)
        return number


def _facts(known: Facts, before: Observation, now: Observation) -> Facts:
    return (*known, ("outputs", now.outputs)) if now.outputs != before.outputs else known


def _is_product(equation: Any) -> bool:
    operands = [getattr(v.aval, "dtype", None) for v in equation.invars]
    return equation.primitive.name in PRODUCTS and all(dtype == jnp.float32 for dtype in operands)


@dataclass(frozen=True)
class Lowered:
    """Rounds the operands of products to `dtype`."""

    dtype: str

    def __call__(self, equation: Any, operands: list[Any], evaluate: Evaluate) -> list[Any]:
        if not _is_product(equation):
            return evaluate(equation)
        params = {**equation.params, "preferred_element_type": jnp.dtype(jnp.float32)}
        return [equation.primitive.bind(*(each.astype(self.dtype) for each in operands), **params)]


@dataclass(frozen=True)
class ScaledLoss:
    """Value and gradient by way of a loss that is `scale` times as large."""

    scale: int

    def __call__(self, loss: Callable[..., Any], take: Callable[[Callable[..., Any]], Any]) -> Any:
        def scaled(*args: Any, **kwargs: Any) -> Any:
            found = loss(*args, **kwargs)
            # With has_aux there are two, of which the first is the loss.
            return (found[0] * self.scale, *found[1:]) if isinstance(found, tuple) else found * self.scale

        take_both = take(scaled)

        def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
            value, gradient = take_both(*args, **kwargs)
            value = (value[0] / self.scale, *value[1:]) if isinstance(value, tuple) else value / self.scale
            return value, jax.tree.map(lambda leaf: leaf / self.scale, gradient)

        return value_and_gradient


MEMBERS = (
    Mixed("mixed-bf16", "products in bfloat16, everything else as it is: parameters stay float32", "bf16"),
    Mixed("mixed-f16", "products in float16, everything else as it is; the loss is scaled", "f16", scales=True),
)
