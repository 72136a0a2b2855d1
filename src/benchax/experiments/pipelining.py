"""`benchax.experiments.pipeline`: stages on a device each, fed with micro-batches; and what the whole batch gives.

What is tried, and how, is said in `variants/pipeline.py` and `pipes.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from benchax.case import Case, make_case
from benchax.environment import capture
from benchax.experiments.lab import BASELINE, quiet
from benchax.experiments.variant_rows import failed_row, refused_row
from benchax.experiments.variants.pipeline import (
    MICRO_BATCHES,
    Chain,
    Piped,
    Stage,
    Told,
    checked_numbers,
    checked_stages,
    curve,
    tried_in_worker,
)
from benchax.model import Failure
from benchax.options import resolve
from benchax.results.experiment import Experiment, VariantRow

WHOLE = "the whole batch through all stages on one device"


def pipeline(
    stages: Sequence[Stage],
    x: Any,
    *,
    micro_batches: Iterable[int] = MICRO_BATCHES,
    name: str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] = quiet,
) -> Experiment:
    """Lets micro-batches flow through stages on a device each, and compares the results with the whole batch on one.

        for stage in stages:
            x = stage(x)

    Args:
        stages: functions y = stage(x), with their parameters inside (a closure, a partial). Each must treat the rows
            of its input apart; one that does not, such as a mean over the batch, gives a wrong result, which is told.
        x: the batch: an array, a pytree of arrays with as many rows, a spec such as "f32[1024,64]".
        micro_batches: into how many parts the batch is cut, one after the other.
        timeout_s: of each number of micro-batches, in the process that tries them.
        seed: of the data made from specs.
        progress: told in words how far it is.

    Returns:
        Experiment: its one curve has a point for each number of micro-batches. Its `seconds` are None where they would
        not stand for devices; the sentence of the curve says why.

    Raises:
        UsageError: `stages` are not several functions, or `micro_batches` no numbers.
    """
    stages = checked_stages(f"stages={stages!r}", stages)
    numbers = checked_numbers(f"micro_batches={micro_batches!r}", micro_batches)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(Chain(stages), (x,), name=name or f"pipeline of {len(stages)} stages")
    piped = Piped(case, 0, stages, numbers)
    told = tried_in_worker(piped, options, progress)
    return _fail(case, told) if isinstance(told, Failure) else _experiment(piped, told)


def _fail(case: Case, failure: Failure) -> Experiment:
    return Experiment(case.id.label, "", failed_row(BASELINE, WHOLE, failure), environment=capture(with_jax=False))


def _experiment(piped: Piped, told: Told) -> Experiment:
    label, environment = piped.case.id.label, replace(capture(with_jax=False), **told["environment"])
    if told["why"]:
        row = refused_row(BASELINE, WHOLE, "not_available", told["why"])
        return Experiment(label, told["signature"], row, environment=environment)
    row = VariantRow(BASELINE, WHOLE, sentence=f"{WHOLE}: its results are those that are expected")
    return Experiment(label, told["signature"], row, curves=(curve(piped, told),), environment=environment)
