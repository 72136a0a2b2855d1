"""The gradient of a batch as the mean over micro-batches, one after the other: less memory for the same result.

Equal only where the loss is a mean over the rows; of any other loss the outputs differ, and the row says so. Which
arguments hold the batch is given (batch=x), or guessed (`batches.py`), and each row says which it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from benchax.case import Case
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.batches import Batch, find_batch
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
    batch: str = ""
    """Arguments that hold the batch; empty: they are guessed."""

    def with_batch(self, batch: str) -> AccumulatedGradients:
        return replace(self, batch=batch)

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        counts = _parse_counts(given)
        whole = differentiate(case, seed)
        batch = _batch(whole, self.batch)
        return lambda lab: _rows(self, whole, batch, counts, lab)


def _parse_counts(text: Any) -> tuple[int, ...]:
    if text is None:
        return USUAL
    words = [word.strip() for word in str(text).split(",")]
    if not all(word.isdecimal() and word.isascii() and int(word) > 1 for word in words):
        raise UsageError(f"accumulate-gradients={text!r}", "numbers of micro-batches above 1, such as 4 or 2,4,8")
    return tuple(map(int, words))


def _batch(whole: Differentiated, given: str) -> Batch:
    loss, argument = replace(whole.case, fn=whole.gradient.loss), whole.gradient.argument
    try:
        found = find_batch(loss, whole.inputs, given, without=(argument, *whole.inputs.kwargs))
    except NotAvailable:
        raise NotAvailable(
            f"no argument but {whole.name} is a batch: an array, or a tree of arrays with as many rows"
        ) from None
    return found


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
    batch: Batch,
    counts: tuple[int, ...],
    lab: Lab,
) -> tuple[VariantRow, ...]:
    # The gradient is taken by position, and so is the batch: names are left out above.
    batched = tuple(key for key in batch.arguments if isinstance(key, int))
    candidates: list[Candidate] = []
    refused: list[VariantRow] = []
    for count in counts:
        name = f"{variant.name}:{count}"
        if batch.rows % count:
            why = f"{batch.rows} rows of {', '.join(batch.names)} do not divide into {count} equal micro-batches"
            refused.append(refused_row(name, variant.title, "not_available", why))
            continue
        facts = (("batch", f"{batch.how}; in {count} parts"), ("equal", "only where the loss is a mean over the rows"))
        case = whole.with_gradient(MicroBatched(whole.gradient, count, batched))
        candidates.append(
            Candidate(name, variant.title, ChangedCase(case, facts=lambda *_, facts=facts: facts), has_loop=True)
        )
    if not candidates:
        return tuple(refused)
    return (*measure_baseline_group(f"{variant.name}:1", whole.title, whole.case, candidates, lab), *refused)


MEMBERS = (AccumulatedGradients(),)
