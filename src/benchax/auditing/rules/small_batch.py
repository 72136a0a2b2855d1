"""Finds batches so small that a batch of twice the size takes hardly longer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, refuse_failed, require_decided, rule
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.experiments.functions import CallArguments, change_arrays, count_rows
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
    n, batched = _batch(case, e.inputs)
    summary = e.measurement.summary()
    if summary is None:
        raise NotMeasured("its run time was not measured")
    # In pairs twice the batch took 1.2 times as long, in plain loops 0.5 to 3.6 times, for calls of 15 to 60 µs: it
    # depends on whether a thread of XLA's pool is awake, and not on the batch (docs/rules/field-notes.md).
    if summary.median_s < SHORT_S:
        raise NotApplicable(f"a call takes {seconds(summary.median_s)}, most of which does not depend on the batch")
    if summary.median_s > LONG_S:
        return
    doubled = replace(case, inputs=_Twice(case, e.seed, batched))
    c = require_decided(e.compare(f"batch {2 * n}", doubled, case), f"a batch of {2 * n}")
    if c.ratio is None or (c.low or c.ratio) > LITTLE:
        return
    # By the end of the interval that speaks against it: to batch more is work, and no median is worth that alone.
    if (c.high or c.ratio) > LITTLE:
        raise NotMeasured(f"undecided: {_describe(n, c)}")
    yield small_batch.finding(
        f"a batch of {2 * n} takes {number(c.ratio)} times as long as one of {n}",
        [_describe(n, c), f"{percent(1 - c.ratio / 2)} less time for each element of the batch"],
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


def _batch(case: Case, inputs: Inputs) -> tuple[int, tuple[int | str, ...]]:
    """(size of the batch, the arguments that have it): the first such set for which all outputs double with it.

    Raises:
        NotApplicable: there is none.
    """
    dynamic = {k: v for k, v in [*enumerate(inputs.args), *inputs.kwargs.items()] if k not in inputs.static}
    sizes = {k: count_rows(v) for k, v in dynamic.items()}
    candidates = [(k,) for k in dynamic if sizes[k]]
    candidates += [tuple(k for k in dynamic if sizes[k] == n) for n in dict.fromkeys(filter(None, sizes.values()))]
    for chosen in dict.fromkeys(candidates):
        if _doubles(case, inputs, chosen):
            return sizes[chosen[0]] or 0, chosen
    raise NotApplicable("no argument has a first axis along which its outputs grow")


def _doubles(case: Case, inputs: Inputs, chosen: tuple[int | str, ...]) -> bool:
    try:
        before = _outputs(case, inputs.args, inputs.kwargs)
        after = _outputs(case, *_twice(inputs, chosen))
    except Exception:  # the shapes do not fit: that argument has no batch; harmless, another one is tried
        return False
    # Single numbers, such as a loss, need not grow with the batch; but some output has to.
    return bool(before) and all(
        a[:1] and b == (2 * a[0], *a[1:]) for a, b in zip(before, after, strict=True) if a or b
    ) and any(before)  # fmt: skip


def _outputs(case: Case, args: Any, kwargs: Any) -> list[tuple[int, ...]]:
    jitted = jax.jit(
        case.fn,
        static_argnums=[p for p in case.static if isinstance(p, int)] or None,
        static_argnames=[p for p in case.static if isinstance(p, str)] or None,
    )
    return [leaf.shape for leaf in jax.tree.leaves(jitted.eval_shape(*args, **kwargs))]


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
