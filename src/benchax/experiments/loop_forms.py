"""A loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan.

The body is a function, `step(i, state)`. `benchax.experiments.loops` measures them, each beside the plain Python loop;
so does the variant `loop`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.core import Tracer

from benchax.case import Case, make_case, name_of
from benchax.comparing.sequential import Effort
from benchax.errors import NotAvailable, UsageError
from benchax.experiments import variant_rows
from benchax.experiments.base import ChangedCase
from benchax.experiments.lab import BASELINE, Lab, WorkerLab, judge_variants, without_flops
from benchax.experiments.study import StudySide
from benchax.keywords import guard_keywords
from benchax.options import resolve
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Experiment, VariantRow
from benchax.units import read_duration

MOST_UNROLLED = 1000
LoopBody = Callable[[Any, Any], Any]
Condition = Callable[[Any], Any]

PLAIN = "a Python loop, operation by operation"
TRIP_COUNT = "a trip count from 1 up, or a condition of the state"
HOW_TO_GIVE = f"{TRIP_COUNT}: loop=50, loop=model.py:unfinished"


@dataclass(frozen=True, eq=False)
class InPython:
    """The loop in Python. While it is traced (for the run in float64) it is a loop of XLA: nothing is unrolled."""

    step: LoopBody
    n: int | Condition
    is_body_jitted: bool = False
    is_unrolled: bool = False

    def __call__(self, state: Any) -> Any:
        is_traced = any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(state))
        if is_traced and not self.is_unrolled:
            return InXla(self.step, self.n)(state)
        i = 0
        while self.n(state) if callable(self.n) else i < self.n:
            state = self._body(i, state)
            i += 1
        return state

    @cached_property
    def _body(self) -> LoopBody:
        return jax.jit(self.step) if self.is_body_jitted else self.step

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if key != "_body"}


@dataclass(frozen=True, eq=False)
class InXla:
    """`fori_loop`, or `while_loop` for a condition."""

    step: LoopBody
    n: int | Condition

    def __call__(self, state: Any) -> Any:
        if not callable(self.n):
            return jax.lax.fori_loop(0, self.n, self.step, state)
        n = self.n
        counted = jax.lax.while_loop(lambda s: n(s[1]), lambda s: (s[0] + 1, self.step(s[0], s[1])), (0, state))
        return counted[1]


@dataclass(frozen=True, eq=False)
class InScan:
    step: LoopBody
    n: int

    def __call__(self, state: Any) -> Any:
        return jax.lax.scan(lambda s, i: (self.step(i, s), None), state, jax.numpy.arange(self.n))[0]


@dataclass(frozen=True)
class LoopForm:
    """One way to write the loop, under a name."""

    name: str
    title: str

    def apply(self, case: Case, step: LoopBody, n: int | Condition) -> ChangedCase:
        """Raises `NotAvailable` where the loop cannot be written so."""
        whole = replace(case, jit=True, id=replace(case.id, variant=""))
        if self.name == "inner-jit":
            return ChangedCase(replace(case, fn=InPython(step, n, is_body_jitted=True)))
        if self.name == "lax-loop":
            return ChangedCase(replace(whole, fn=InXla(step, n)))
        if callable(n):
            raise NotAvailable("the trip count is not known while tracing")
        if self.name == "scan":
            return ChangedCase(replace(whole, fn=InScan(step, n)))
        if n > MOST_UNROLLED:
            raise NotAvailable(f"more than {MOST_UNROLLED} iterations are not unrolled here; it has {n}")
        return ChangedCase(replace(whole, fn=InPython(step, n, is_unrolled=True)))


LOOP_FORMS = (
    LoopForm("inner-jit", "the Python loop with a jitted body"),
    LoopForm("lax-loop", "jitted as a whole: jax.lax.fori_loop or while_loop"),
    LoopForm("unrolled", "jitted as a whole: Python unrolls it while tracing"),
    LoopForm("scan", "jitted as a whole: jax.lax.scan"),
)


def check_trip_count(said: str, n: Any, expected: str) -> int | Condition:
    """Raises `UsageError`, which begins with `said`, for what is neither a trip count nor a condition."""
    if callable(n) or (type(n) is int and n > 0):
        return n
    raise UsageError(said, expected)


def measure_loop(case: Case, step: LoopBody, n: int | Condition, lab: Lab) -> Experiment:
    """The loop of `case`, in Python, and its other forms, compared with it."""
    titles = {form.name: form.title for form in LOOP_FORMS}
    changed: dict[str, ChangedCase] = {}
    rows: dict[str, VariantRow] = {}
    for form in LOOP_FORMS:
        try:
            changed[form.name] = form.apply(case, step, n)
        except NotAvailable as error:
            rows[form.name] = variant_rows.refused_row(form.name, form.title, "not_available", error.problem)
    looked = lab.study([StudySide(BASELINE, case), *(StudySide(form, one.case) for form, one in changed.items())])
    if BASELINE not in looked.seen:
        row = variant_rows.failed_row(BASELINE, PLAIN, looked.failures[BASELINE])
        return Experiment(case.id.label, "", row, environment=looked.environment)
    seen = looked.seen[BASELINE]
    baseline = variant_rows.seen_row(BASELINE, PLAIN, seen)
    rows |= judge_variants(case, titles, changed, looked, baseline, lab)
    listed = tuple(
        # Unrolled there is no loop, so that XLA counts all of it.
        rows[form.name] if form.name == "unrolled" else without_flops(rows[form.name])
        for form in LOOP_FORMS
    )
    return Experiment(case.id.label, seen.signature, baseline, listed, environment=looked.environment)


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
        progress: as for `bench`.

    Raises:
        UsageError: `step` or `n` is none.
    """
    if not callable(step):
        raise UsageError(f"step={step!r} cannot be called", "a function step(i, state) that returns the next state")
    n = check_trip_count(f"n={n!r}", n, TRIP_COUNT)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(InPython(step, n), (init,), name=name or name_of(step), jit=False)
    effort = Effort(max_time_s=read_duration("max_time_s", max_time_s))
    with show_progress(progress) as report:
        return measure_loop(case, step, n, WorkerLab(options, effort, report))
