"""`benchax.experiments.loops`: a loop in five ways, each compared with the plain Python loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchax.case import make_case, name_of
from benchax.errors import UsageError
from benchax.experiments.lab import Lab, quiet
from benchax.experiments.loop_forms import TRIP_COUNT, Condition, InPython, LoopBody, check_trip_count, measure_loop
from benchax.options import resolve
from benchax.pairing.session import Effort
from benchax.results.experiment import Experiment


def loops(
    step: LoopBody,
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
        step: one iteration, of shapes and dtypes that stay as they are.
        init: the first state: arrays, pytrees, specs such as "f32[1024]".
        n: trip count, or a condition of the state: the loop goes on while `n(state)` is true. Then there is no
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
    n = check_trip_count(f"n={n!r}", n, TRIP_COUNT)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(InPython(step, n), (init,), name=name or name_of(step), jit=False)
    return measure_loop(case, step, n, Lab(options, {}, Effort(max_time_s=max_time_s), progress))
