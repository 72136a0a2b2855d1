"""A loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan.

A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, to the variant
`loop`, or to `benchax.experiments.loops`. Each form is compared with the plain Python loop.

    loop=50                     iterations
    loop=model.py:unfinished    as long as unfinished(state) is true
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
from jax.core import Tracer

from benchax.case import Case, make_case, name_of
from benchax.comparing.sequential import Effort
from benchax.discovery import literal
from benchax.errors import NotAvailable, UsageError
from benchax.experiments.functions import CallArguments
from benchax.experiments.lab import BASELINE, WorkerLab
from benchax.experiments.variant import Asked, ChangedCase, Measure
from benchax.experiments.variant_rows import VariantWay, compare_ways, measure_ways
from benchax.keywords import guard_keywords
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.options import resolve
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Experiment
from benchax.units import plural, read_duration

MOST_UNROLLED = 1000
LoopBody = Callable[[Any, Any], Any]
Condition = Callable[[Any], Any]

PLAIN = "a Python loop, operation by operation"
TRIP_COUNT = "a trip count from 1 up, or a condition of the state"
HOW_TO_GIVE = f"{TRIP_COUNT}: loop=50, loop=model.py:unfinished"


@dataclass(frozen=True, eq=False)
class WrittenLoop:
    """A loop in one of the `LOOP_FORMS`; "python": the plain one."""

    step: LoopBody
    n: int | Condition
    form: str = "python"

    def __call__(self, state: Any) -> Any:
        step, n, form = self.step, self.n, self.form
        # While a Python loop is traced (for the run in float64) it is a loop of XLA: nothing is unrolled.
        if form in ("python", "inner-jit") and any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state)):
            form = "lax-loop"
        if form == "scan":
            return jax.lax.scan(lambda s, i: (step(i, s), None), state, jax.numpy.arange(n))[0]
        if form == "lax-loop" and callable(n):
            return jax.lax.while_loop(lambda s: n(s[1]), lambda s: (s[0] + 1, step(s[0], s[1])), (0, state))[1]
        if form == "lax-loop":
            return jax.lax.fori_loop(0, n, step, state)
        i = 0
        while n(state) if callable(n) else i < n:
            state = self._body(i, state)
            i += 1
        return state

    @cached_property
    def _body(self) -> LoopBody:
        return jax.jit(self.step) if self.form == "inner-jit" else self.step

    def __getstate__(self) -> dict[str, Any]:
        # What is jitted does not travel: the other process jits its own.
        return {key: value for key, value in vars(self).items() if key != "_body"}


LOOP_FORMS = {
    "inner-jit": "the Python loop with a jitted body",
    "lax-loop": "jitted as a whole: jax.lax.fori_loop or while_loop",
    "unrolled": "jitted as a whole: Python unrolls it while tracing",
    "scan": "jitted as a whole: jax.lax.scan",
}


def write_loop(form: str, case: Case, step: LoopBody, n: int | Condition) -> ChangedCase:
    """The loop of `case` in one of the `LOOP_FORMS`. Raises `NotAvailable` where it cannot be written so."""
    if callable(n) and form in ("unrolled", "scan"):
        raise NotAvailable("the trip count is not known while tracing")
    if form == "unrolled" and not callable(n) and n > MOST_UNROLLED:
        raise NotAvailable(f"more than {MOST_UNROLLED} iterations are not unrolled here; it has {n}")
    changed = replace(case, fn=WrittenLoop(step, n, form))
    if form != "inner-jit":
        changed = replace(changed, jit=True, id=replace(case.id, variant=""))
    # Unrolled there is no loop, so that XLA counts all of it.
    return ChangedCase(changed, has_loop=form != "unrolled")


def check_trip_count(said: str, n: Any, expected: str) -> int | Condition:
    """Raises `UsageError`, which begins with `said`, for what is neither a trip count nor a condition."""
    if callable(n) or (type(n) is int and n > 0):
        return n
    raise UsageError(said, expected)


def _first_state(body: Case, seed: int) -> CallArguments:
    """The state among the inputs of an iteration. Numbers become arrays, as in a loop of XLA."""
    return (jax.tree.map(jax.numpy.asarray, make_inputs(body, seed).args[1]),), {}


def measure_loops(asked: Asked) -> Measure:
    """The function is one iteration, step(i, state)."""
    case, n = asked.case, _trip_count(asked)
    _check_inputs(case, make_inputs(case, asked.seed))
    body = asked.plain  # a jitted one would be no loop "operation by operation"
    inputs = partial(_first_state, case, asked.seed)
    whole = replace(body, fn=WrittenLoop(body.fn, n), inputs=inputs, static=(), donate=(), jit=False)
    whole = replace(whole, id=replace(case.id, variant=""))
    count = f"while {name_of(n)}(state)" if callable(n) else plural(n, "iteration")
    ways = {f"loop:{form}": way for form, way in _ways(whole, body.fn, n).items()}
    return partial(measure_ways, "loop:python", f"{PLAIN}; {count}, i from 0 on", whole, ways)


def _ways(case: Case, step: LoopBody, n: int | Condition) -> dict[str, VariantWay[ChangedCase]]:
    return {form: VariantWay(title, partial(write_loop, form, case, step, n)) for form, title in LOOP_FORMS.items()}


def _trip_count(asked: Asked) -> int | Condition:
    raw = asked.given
    if not isinstance(raw, str):
        return check_trip_count(asked.text, raw, HOW_TO_GIVE)
    if ":" not in raw:
        return check_trip_count(asked.text, literal(raw.strip()), HOW_TO_GIVE)
    named = asked.named_object(raw)
    return check_trip_count(f"{asked.text} names an object of the type {type(named).__name__}", named, HOW_TO_GIVE)


def _check_inputs(case: Case, inputs: Inputs) -> None:
    """Raises `UsageError` unless the inputs are those of step(i, state)."""
    if len(inputs.args) != 2 or inputs.kwargs or not _is_index(inputs.args[0]):
        raise UsageError(
            f"loop cannot take {case.id.label}({inputs.signature}) for one iteration",
            "two inputs by position, as of step(i, state): the number of the iteration, and the state",
            "benchax experiment model.py:step 0 f32[1000] --variants loop --given loop=50",
        )


def _is_index(i: Any) -> bool:
    is_scalar = isinstance(i, jax.Array) and not i.shape and jax.numpy.issubdtype(i.dtype, jax.numpy.integer)
    return is_scalar or type(i) is int


@guard_keywords()
def loops(
    step: LoopBody,
    init: Any,
    n: int | Condition,
    *,
    name: str | None = None,
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
) -> Experiment:
    """Measures a loop in five ways, each paired with the plain Python loop, and compares the results.

        state = init
        for i in range(n):
            state = step(i, state)

    Args:
        step: one iteration, of shapes and dtypes that stay as they are.
        init: the first state: arrays, pytrees, specs such as "f32[1024]".
        n: trip count, or a condition of the state: the loop goes on while `n(state)` is true. Then there is no
            scan, and nothing to unroll.
        max_time_s: begin no further process after this long; half of it is for confirming changes.
        timeout_s: of each stage in the worker processes.
        seed: of the data made from specs.
        progress: as for `bench`.

    Raises:
        UsageError: `step` or `n` is invalid.
    """
    if not callable(step):
        raise UsageError(f"step={step!r} cannot be called", "a function step(i, state) that returns the next state")
    n = check_trip_count(f"n={n!r}", n, TRIP_COUNT)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(WrittenLoop(step, n), (init,), name=name or name_of(step), jit=False)
    effort = Effort(max_time_s=read_duration("max_time_s", max_time_s))
    with show_progress(progress) as report:
        return measure_loop(case, step, n, WorkerLab(options, effort, report))


def measure_loop(case: Case, step: LoopBody, n: int | Condition, lab: WorkerLab) -> Experiment:
    """The loop of `case`, in Python, and its other forms, compared with it."""
    return compare_ways(BASELINE, PLAIN, case, _ways(case, step, n), lab).experiment(case.id.label)
