"""The gradient of a batch as the mean over micro-batches, one after the other: less memory for the same result.

Equal only where the loss is a mean over the rows; of any other loss the outputs differ, and the row says so. The batch
is what most of the arguments beside the differentiated one have in front, rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.functions import count_rows
from benchax.experiments.gradients import Differentiated, Gradient, differentiate
from benchax.experiments.lab import Lab
from benchax.experiments.variant import ChangedCase, Measure
from benchax.experiments.variant_rows import Candidate, measure_baseline_group, refused_row
from benchax.results.experiment import VariantRow

USUAL = (4,)


@dataclass(frozen=True)
class AccumulatedGradients:
    name: str = "accumulate-gradients"
    title: str = "gradient as the mean over micro-batches, one after the other"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        counts = _parse_counts(given)
        whole = differentiate(case, seed)
        rows, batched = _batch(whole)
        return lambda lab: _rows(self, whole, rows, batched, counts, lab)


def _parse_counts(text: Any) -> tuple[int, ...]:
    if text is None:
        return USUAL
    words = [word.strip() for word in str(text).split(",")]
    if not all(word.isdecimal() and word.isascii() and int(word) > 1 for word in words):
        raise UsageError(f"accumulate-gradients={text!r}", "numbers of micro-batches above 1, such as 4 or 2,4,8")
    return tuple(map(int, words))


def _batch(whole: Differentiated) -> tuple[int, tuple[int, ...]]:
    """(rows, positions of the arguments that have them in front)"""
    inputs = whole.inputs
    fronts = {
        i: front
        for i, tree in enumerate(inputs.args)
        if i not in (*inputs.static, whole.gradient.argument) and (front := count_rows(tree)) is not None
    }
    if not fronts:
        raise NotAvailable(f"no argument but {whole.name} is a batch: an array, or a tree of arrays with as many rows")
    # Of several numbers of rows the most frequent, of these the largest.
    rows = max(Counter(fronts.values()).items(), key=lambda item: (item[1], item[0]))[0]
    return rows, tuple(i for i, front in fronts.items() if front == rows)


@dataclass(frozen=True)
class MicroBatched:
    gradient: Gradient
    count: int
    batched: tuple[int, ...]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        parts = {i: jax.tree.map(self._split_leaf, args[i]) for i in self.batched}

        def of(part: dict[int, Any]) -> Any:
            return self.gradient(*(part.get(i, value) for i, value in enumerate(args)), **kwargs)

        def step(total: Any, part: dict[int, Any]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, of(part)), None

        shapes = jax.eval_shape(of, jax.tree.map(lambda leaf: leaf[0], parts))
        zeros = jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)
        total, _ = jax.lax.scan(step, zeros, parts)
        return jax.tree.map(lambda leaf: leaf / self.count, total)

    def _split_leaf(self, leaf: Any) -> Any:
        return leaf.reshape(self.count, leaf.shape[0] // self.count, *leaf.shape[1:])


def _rows(
    variant: AccumulatedGradients,
    whole: Differentiated,
    rows: int,
    batched: tuple[int, ...],
    counts: tuple[int, ...],
    lab: Lab,
) -> tuple[VariantRow, ...]:
    candidates: list[Candidate] = []
    refused: list[VariantRow] = []
    batch = f"{rows} rows of {', '.join(whole.names[i] for i in batched)}"
    for count in counts:
        name = f"{variant.name}:{count}"
        if rows % count:
            why = f"{batch} do not divide into {count} equal micro-batches"
            refused.append(refused_row(name, variant.title, "not_available", why))
            continue
        facts = (("batch", f"{batch}, in {count} parts"), ("equal", "only where the loss is a mean over the rows"))
        case = whole.with_gradient(MicroBatched(whole.gradient, count, batched))
        candidates.append(
            Candidate(name, variant.title, ChangedCase(case, facts=lambda *_, facts=facts: facts), has_loop=True)
        )
    if not candidates:
        return tuple(refused)
    return (*measure_baseline_group(f"{variant.name}:1", whole.title, whole.case, candidates, lab), *refused)


MEMBERS = (AccumulatedGradients(),)
