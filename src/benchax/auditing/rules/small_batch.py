"""Finds batches so small that a batch of twice the size takes hardly longer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, refuse_failed, require_decided, rule
from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.batches import Batch, find_batch
from benchax.experiments.functions import CallArguments, change_arrays
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Comparison
from benchax.results.audit import Finding
from benchax.units import number, percent, seconds

SHORT_S = 100e-6
"""In shorter calls the dispatch to the thread pool decides, whose time depends on what else runs."""
LONG_S = 0.1
"""A call of this length has enough to do."""
LITTLE = 1.4
"""Twice the work in less than this times the time."""


@rule("small-batch", "is the batch too small to use the machine?", "info")
def small_batch(e: Evidence) -> Iterable[Finding]:
    refuse_failed(e.failure)
    case = replace(e.plain_case, donate=())
    batch = _batch(case, e.inputs)
    n = batch.rows
    call_s = e.measurement.median_s
    # In pairs twice the batch took 1.2 times as long, in plain loops 0.5 to 3.6 times, for calls of 15 to 60 µs: it
    # depends on whether a thread of XLA's pool is awake, and not on the batch (docs/about/field-notes.md).
    if call_s < SHORT_S:
        raise NotApplicable(f"a call takes {seconds(call_s)}, most of which does not depend on the batch")
    if call_s > LONG_S:
        return
    doubled = replace(case, inputs=_Twice(case, e.seed, batch.arguments))
    c = require_decided(e.compare(f"batch {2 * n}", doubled, case), f"a batch of {2 * n}")
    if c.ratio is None or (c.low or c.ratio) > LITTLE:
        return
    # By the end of the interval that speaks against it: to batch more is work, and no median is worth that alone.
    if (c.high or c.ratio) > LITTLE:
        raise NotMeasured(f"undecided: {_describe(n, c)}")
    yield small_batch.finding(
        f"a batch of {2 * n} takes {number(c.ratio)} times as long as one of {n}",
        [_describe(n, c), f"batch: {batch.how}", f"{percent(1 - c.ratio / 2)} less time for each element of the batch"],
        "Put more into one call, if the elements need not be answered one by one.",
        where=e.def_where,
        gain=_gain(n, c),
    )


def _gain(n: int, c: Comparison) -> Gain | None:
    if c.baseline_value is None or c.ratio is None:
        return None
    now, then = c.baseline_value, c.baseline_value * c.ratio / 2
    return Gain(f"measured: {seconds(now / n)} → {seconds(then / n)} per element of the batch", now - then)


def _describe(n: int, c: Comparison) -> str:
    around = f", {number(c.low)} – {number(c.high)}" if c.low and c.high else ""
    return f"batch {n}: {seconds(c.baseline_value or 0.0)} per call; batch {2 * n}: {number(c.ratio or 0.0)}×{around}"


def _batch(case: Case, inputs: Inputs) -> Batch:
    """Raises `NotApplicable` where the outputs grow with no argument: what holds the batch is not known then."""
    try:
        found = find_batch(case, inputs)
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    if found.basis != "outputs":
        raise NotApplicable("no argument has a first axis along which its outputs grow")
    return found


def _twice(inputs: Inputs, chosen: tuple[int | str, ...]) -> CallArguments:
    return change_arrays(inputs, lambda key, leaf: jnp.concatenate([leaf, leaf]) if key in chosen else leaf)


@dataclass(frozen=True)
class _Twice:
    """An input factory: the inputs of a case, some of them twice, one behind the other."""

    case: Case
    seed: int
    chosen: tuple[int | str, ...]

    def __call__(self) -> CallArguments:
        return _twice(make_inputs(self.case, self.seed), self.chosen)
