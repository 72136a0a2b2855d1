"""Recomputing in the backward pass what the forward pass would keep (`jax.checkpoint`, "remat").

The baseline is the gradient of a loss, or a step that takes gradients. Each way to recompute (`checkpoints.py`) has a
row with the compiler's memory plan and the time of a call. For a loss, the row also has the values kept between the two
passes. Whether any of it saves memory depends on the compiler: XLA:CPU mostly plans more, not less.
"""

from __future__ import annotations

import contextlib
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.ad_checkpoint

from benchax.case import Case
from benchax.errors import NotAvailable
from benchax.experiments.checkpoints import Recomputation, read_recomputation
from benchax.experiments.functions import plain
from benchax.experiments.gradient_calls import TAKES_NONE, WithGradients, takes_gradients
from benchax.experiments.gradients import Differentiated, differentiate
from benchax.experiments.lab import Lab
from benchax.experiments.variant import ChangedCase, Measure
from benchax.experiments.variant_rows import Candidate, failed_row, measure_baseline_group, refused_row
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs
from benchax.results.experiment import Facts, VariantRow
from benchax.static_leaves import as_function_of_arrays
from benchax.units import size

USUAL = "nothing_saveable,dots_saveable,segments"
_KEPT = re.compile(r"^(?P<dtype>[a-z][a-z0-9_]*)\[(?P<shape>[\d,]*)\] (?P<origin>.*)$")
_SHORT = re.compile(r"^(bf|f|i|u|c)(\d+)$")
_LONG = {"bf": "bfloat", "f": "float", "i": "int", "u": "uint", "c": "complex"}


@dataclass(frozen=True)
class Remat:
    name: str = "remat"
    title: str = "gradient with jax.checkpoint: recomputed in the backward pass, not kept"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        ways = self._read(given)
        try:
            loss = differentiate(case, seed)
        except NotAvailable as error:
            step = RecomputedStep(self._step(case, seed, error))
            return lambda lab: _rows(self, step, ways, lab)
        return lambda lab: _rows(self, RecomputedLoss(loss), ways, lab)

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        """Among other variants: a step that takes gradients, recomputed in the first of the ways."""
        way = self._read(given)[0]
        step = RecomputedStep(self._step(case, seed))
        return ChangedCase(step.recompute(way), facts=lambda *_: (("recomputed", way.title),))

    def _read(self, given: Any) -> tuple[Recomputation, ...]:
        text = USUAL if given is None else given if isinstance(given, str) else ",".join(map(str, given))
        words = dict.fromkeys(word.strip() for word in text.split(","))
        return tuple(read_recomputation(self.name, text, word) for word in words)

    def _step(self, case: Case, seed: int, no_loss: NotAvailable | None = None) -> Case:
        """The eager function, which takes gradients. Raises `NotAvailable` where it takes none."""
        unjitted = replace(plain(case, seed), jit=True)
        if takes_gradients(unjitted.fn, make_inputs(unjitted, seed)):
            return unjitted
        raise no_loss or NotAvailable(TAKES_NONE)


@dataclass(frozen=True)
class Recomputed:
    """Gradients of losses that are computed again."""

    way: Recomputation

    def __call__(self, loss: Callable[..., Any], take: Callable[[Callable[..., Any]], Any]) -> Any:
        return take(self.way.of(loss))


@dataclass(frozen=True)
class RecomputedStep:
    """A function that takes gradients, which are taken with checkpoints."""

    case: Case
    """As it is."""
    title = "the step, with its gradients as it takes them"

    def recompute(self, way: Recomputation) -> Case:
        """Raises `NotAvailable` where it has no such layers or values."""
        changed = replace(self.case, fn=WithGradients(self.case.fn, Recomputed(way)))
        inputs = make_inputs(changed, 0)
        call, arrays = as_function_of_arrays(changed.fn, inputs.args, inputs.kwargs)
        jax.eval_shape(call, *arrays)
        return changed

    def describe(self, way: Recomputation | None) -> Facts:
        """Nothing: what a gradient inside of a function keeps, JAX does not list."""
        return ()


@dataclass(frozen=True)
class RecomputedLoss:
    """The gradient of a loss, which is taken with checkpoints."""

    differentiated: Differentiated

    @property
    def case(self) -> Case:
        return self.differentiated.case

    @property
    def title(self) -> str:
        return self.differentiated.title

    def recompute(self, way: Recomputation) -> Case:
        return self.differentiated.with_loss(way.of(self.differentiated.gradient.loss))

    def describe(self, way: Recomputation | None) -> Facts:
        """Describes the values kept between the passes. Raises `NotAvailable` if the loss has no such layers or
        values."""
        loss = self.differentiated.gradient.loss
        return saved_residuals(loss if way is None else way.of(loss), self.differentiated)


def _rows(
    variant: Remat, gradient: RecomputedLoss | RecomputedStep, ways: Sequence[Recomputation], lab: Lab
) -> tuple[VariantRow, ...]:
    candidates: list[Candidate] = []
    refused: list[VariantRow] = []
    for way in ways:
        name = f"{variant.name}:{way.label}"
        try:
            case, facts = gradient.recompute(way), gradient.describe(way)
        except NotAvailable as error:
            refused.append(refused_row(name, variant.title, "not_available", error.problem))
            continue
        except Exception as error:  # of the user's loss, such as one whose outputs are no arrays; the others go on
            refused.append(failed_row(name, variant.title, diagnose(error, "preparing")))
            continue
        changed = ChangedCase(case, facts=lambda *_, facts=facts: facts)
        candidates.append(Candidate(name, f"gradient with {way.title}", changed))
    rows = measure_baseline_group(f"{variant.name}:none", gradient.title, gradient.case, candidates, lab)
    baseline = rows[0] if rows[0].status != "ok" else replace(rows[0], facts=gradient.describe(None))
    return (baseline, *rows[1:], *refused)


def saved_residuals(loss: Callable[..., Any], plain: Differentiated) -> Facts:
    """Returns the values that the forward pass keeps for the backward one, by JAX's own list. Arguments, which exist
    anyway, are separate.

    It is empty if JAX prints an unreadable list (0.6 to 0.12 print alike).
    """
    listed = io.StringIO()
    with contextlib.redirect_stdout(listed):
        call, arrays = as_function_of_arrays(loss, plain.inputs.args, plain.inputs.kwargs)
        # The documented function prints; the one that returns a list is private.
        jax.ad_checkpoint.print_saved_residuals(call, *arrays)
    found = [_KEPT.match(line) for line in listed.getvalue().splitlines()]
    kept = [match for match in found if match and not match["origin"].startswith("from the argument")]
    sizes = [_bytes(match["dtype"], match["shape"]) for match in kept]
    if not all(found) or None in sizes:
        return ()
    total = sum(each or 0 for each in sizes)
    if not sizes:
        return (("kept between the passes", "nothing but arguments"),)
    largest = kept[max(range(len(kept)), key=lambda i: sizes[i] or 0)]
    what = f"{largest['dtype']}[{largest['shape']}] {largest['origin']}".strip()
    return (("kept between the passes", f"{len(sizes)} arrays, {size(total)}; the largest: {what}"),)


def _bytes(dtype: str, shape: str) -> int | None:
    short = _SHORT.match(dtype)
    name = f"{_LONG[short[1]]}{short[2]}" if short else dtype
    try:
        width = jax.numpy.dtype(name).itemsize
    except TypeError:  # a key, or another type that is none of NumPy's
        return None
    return width * math.prod(int(n) for n in shape.split(",") if n)


MEMBERS = (Remat(),)
