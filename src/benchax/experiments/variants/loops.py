"""A loop in five ways: Python, Python with a jitted body, a loop of XLA, unrolled, scan.

A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, to the variant
`loop`, or to `benchax.experiments.loops`. Each form is compared with the plain Python loop.

    loop=50                     iterations
    loop=model.py:unfinished    as long as unfinished(state) is true
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
from jax.core import Tracer

from benchax.case import Case, make_case, name_of
from benchax.comparing.sequential import Effort
from benchax.discovery import literal
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments import parsing, variant_rows
from benchax.experiments.functions import plain
from benchax.experiments.lab import BASELINE, Lab, WorkerLab
from benchax.experiments.study import StudySide
from benchax.experiments.variant import ChangedCase, Measure
from benchax.experiments.variant_rows import as_baseline_row, judge_variants, without_flops
from benchax.keywords import guard_keywords
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.options import resolve
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Experiment, VariantRow
from benchax.units import plural, read_duration

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
        # What is jitted does not travel: the other process jits its own.
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


@dataclass(frozen=True)
class StateOf:
    """An input factory: the state among the inputs of an iteration. Numbers become arrays, as in a loop of XLA."""

    body: Case
    seed: int

    def __call__(self) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        return (jax.tree.map(jax.numpy.asarray, make_inputs(self.body, self.seed).args[1]),), {}


@dataclass(frozen=True)
class LoopForms:
    """The function is one iteration, step(i, state)."""

    name: str = "loop"
    title: str = "the function as one iteration, step(i, state), of a loop in five ways (loop=50)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured(
                "it needs a trip count, loop=50, or a condition of the state, loop=model.py:unfinished; "
                "the function is one iteration, step(i, state)"
            )
        n = self._trip_count(case, given)
        _check_inputs(case, make_inputs(case, seed))
        body = plain(case, seed)  # a jitted one would be no loop "operation by operation"
        whole = replace(
            body, fn=InPython(body.fn, n), inputs=StateOf(case, seed), static=(), donate=(), jit=False,
            id=replace(case.id, variant=""),
        )  # fmt: skip
        return lambda lab: _rows(whole, body.fn, n, lab)

    def _trip_count(self, case: Case, raw: Any) -> int | Condition:
        said = f"{self.name}={raw!r}"
        if not isinstance(raw, str):
            return check_trip_count(said, raw, HOW_TO_GIVE)
        if ":" not in raw:
            return check_trip_count(said, literal(raw.strip()), HOW_TO_GIVE)
        (named,) = parsing.named_objects(self.name, [raw], case)
        return check_trip_count(f"{said} names an object of the type {type(named).__name__}", named, HOW_TO_GIVE)


def _check_inputs(case: Case, inputs: Inputs) -> None:
    """Raises `UsageError` unless the inputs are those of step(i, state)."""
    if len(inputs.args) != 2 or inputs.kwargs or not _is_index(inputs.args[0]):
        raise UsageError(
            f"loop cannot take {case.id.label}({inputs.signature}) for one iteration",
            "two inputs by position, as of step(i, state): the number of the iteration, and the state",
            "benchax experiment model.py:step 0 f32[1000] --variants loop --given loop=50",
        )


def _is_index(i: Any) -> bool:
    if isinstance(i, jax.Array):
        return not i.shape and jax.numpy.issubdtype(i.dtype, jax.numpy.integer)
    return type(i) is int


def _rows(whole: Case, step: LoopBody, n: int | Condition, lab: Lab) -> tuple[VariantRow, ...]:
    found = measure_loop(whole, step, n, lab)
    rows = [replace(row, name=f"loop:{row.name}") for row in found.rows]
    plain = replace(found.baseline, name="loop:python")
    if plain.status != "ok":
        return (plain, *rows)
    count = f"while {name_of(n)}(state)" if callable(n) else plural(n, "iteration")
    return (as_baseline_row(plain, f"{PLAIN}; {count}, i from 0 on"), *rows)


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
    case = make_case(InPython(step, n), (init,), name=name or name_of(step), jit=False)
    effort = Effort(max_time_s=read_duration("max_time_s", max_time_s))
    with show_progress(progress) as report:
        return measure_loop(case, step, n, WorkerLab(options, effort, report))


MEMBERS = (LoopForms(),)
