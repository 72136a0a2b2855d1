"""The forms of a loop (`experiments/loop_forms.py`) as a variant.

A Python loop cannot be rewritten by looking at it: its body is given as a function, `step(i, state)`, here or to
`benchax.experiments.loops`.

    loop=50                     iterations
    loop=model.py:unfinished    as long as unfinished(state) is true
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax

from benchax.case import Case, name_of
from benchax.discovery import literal
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import parsing
from benchax.experiments.functions import plain
from benchax.experiments.lab import Lab, as_baseline_row
from benchax.experiments.loop_forms import (
    HOW_TO_GIVE,
    PLAIN,
    Condition,
    InPython,
    LoopBody,
    check_trip_count,
    measure_loop,
)
from benchax.experiments.variant import Measure
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.results.experiment import VariantRow


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
    count = f"while {name_of(n)}(state)" if callable(n) else f"{n} {'iteration' if n == 1 else 'iterations'}"
    return (as_baseline_row(plain, f"{PLAIN}; {count}, i from 0 on"), *rows)


MEMBERS = (LoopForms(),)
