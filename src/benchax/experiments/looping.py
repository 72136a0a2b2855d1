"""`benchax.experiments.loops`: a loop in five ways, each measured beside the plain Python loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchax.case import Case, make_case, name_of
from benchax.errors import NotAvailable, UsageError
from benchax.experiments import judging
from benchax.experiments.base import Prepared
from benchax.experiments.run import BASELINE, Request, judged, quiet
from benchax.experiments.study import Side
from benchax.experiments.variants.loops import PLAIN, TURNS, WAYS, Condition, InPython, Step, checked_turns
from benchax.model import Absent
from benchax.options import resolve
from benchax.pairing.session import Effort
from benchax.results.experiment import Experiment, VariantRow


def loops(
    step: Step,
    init: Any,
    n: int | Condition,
    *,
    name: str | None = None,
    max_time_s: float | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Callable[[str], None] = quiet,
) -> Experiment:
    """Measures a loop in five ways, each beside the plain Python loop, and compares the results.

        state = init
        for i in range(n):
            state = step(i, state)

    Args:
        step: one turn, of shapes and dtypes that stay as they are.
        init: the first state: arrays, pytrees, specs such as "f32[1024]".
        n: number of turns, or a condition of the state: the loop goes on while `n(state)` is true. Then there is no
            scan, and nothing to unroll.
        max_time_s: begin no further process after this long, but for confirming a change.
        timeout_s: of each stage in the worker processes.
        seed: of the data made from specs.
        progress: told in words how far it is.

    Raises:
        UsageError: `step` or `n` is none.
    """
    if not callable(step):
        raise UsageError(f"step={step!r} cannot be called", "a function step(i, state) that returns the next state")
    n = checked_turns(f"n={n!r}", n, TURNS)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(InPython(step, n), (init,), name=name or name_of(step), jit=False)
    return run(case, step, n, Request(options, {}, Effort(max_time_s=max_time_s), progress))


def run(case: Case, step: Step, n: int | Condition, request: Request) -> Experiment:
    titles = {way.name: way.title for way in WAYS}
    prepared: dict[str, Prepared] = {}
    rows: dict[str, VariantRow] = {}
    for way in WAYS:
        try:
            prepared[way.name] = way.of(case, step, n)
        except NotAvailable as error:
            rows[way.name] = judging.refused_row(way.name, way.title, "not_available", error.problem)
    looked = request.look([Side(BASELINE, case), *(Side(way, one.case) for way, one in prepared.items())])
    if BASELINE not in looked.seen:
        row = judging.failed_row(BASELINE, PLAIN, looked.failures[BASELINE])
        return Experiment(case.id.label, "", row, environment=looked.environment)
    seen = looked.seen[BASELINE]
    baseline = judging.seen_row(BASELINE, PLAIN, seen)
    rows |= judged(case, titles, prepared, looked, baseline, request)
    listed = tuple(_without_flops(rows[way.name]) for way in WAYS)
    return Experiment(case.id.label, seen.signature, baseline, listed, environment=looked.environment)


def _without_flops(row: VariantRow) -> VariantRow:
    """XLA counts the body of a loop once, so that the rows could not be compared."""
    if row.flops is None or row.name == "unrolled":
        return row
    return replace(row, flops=None, absent=(*row.absent, Absent("flops", "XLA counts the body of a loop once")))
