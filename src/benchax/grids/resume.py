"""Finds the rows of a grid that was not finished, so that only the missing cells are measured.

A row counts if its cell was measured or failed. A cell that had no turn is in no store. Rows measured in another way
(trials, seed, timer) or in another environment are refused: they cannot be in one grid with the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchax.errors import StoreError, UsageError
from benchax.grids.plan import Label, Plan
from benchax.model import Environment, Measurement
from benchax.store.baselines import find_run

Key = tuple[str, Label]


@dataclass(frozen=True)
class Earlier:
    """A run to go on with, and its finished cells."""

    run_id: str
    rows: Mapping[Key, Measurement] = field(default_factory=dict)


def earlier(store: Any, plan: Plan, resume: str | bool) -> Earlier | None:
    """The run to go on with; None if `resume` is True and the store holds no unfinished run of this grid.

    Args:
        resume: the id of a run, or True for the newest unfinished one of a grid of this name.

    Raises:
        UsageError: no such run, or it was measured with other trials, another seed or another timer.
    """
    runs = _runs(store, plan)
    if resume is True:
        wanted = len(plan.cells)
        unfinished = [run for run, keys in runs.items() if len(keys) < wanted]
        if not unfinished:
            return None
        run = unfinished[-1]
    else:
        run = _find_named(str(resume), runs, store, plan)
    return Earlier(run, _rows(store, plan, run))


def _runs(store: Any, plan: Plan) -> dict[str, set[Key]]:
    """The runs of this grid, oldest first by their last row, with the cells that each has rows of."""
    keys = {plan.case_id(function, point.label): (function, point.label) for function, point in plan.cells}
    try:
        rows = [row for function in plan.functions for row in store.rows(case=function)]
    except StoreError:  # nothing was ever stored there
        return {}
    found: dict[str, set[Key]] = {}
    for row in sorted((row for row in rows if row.case in keys), key=lambda row: row.id):
        cells = found.pop(row.run_id, set())
        found[row.run_id] = cells | {keys[row.case]}
    return found


def _find_named(run: str, runs: Mapping[str, Any], store: Any, plan: Plan) -> str:
    # A run that has a name is meant by it, as everywhere; then by the first digits of its id.
    named = find_run(store, run) if run and runs else None  # without runs there may be no database either
    matching = (
        [named]
        if named is not None and named in runs
        else [known for known in runs if known.startswith(run)]
        if run
        else []
    )
    if len(matching) != 1:
        listed = ", ".join(list(runs)[-5:]) or "none"
        raise UsageError(
            f"resume={run!r}: there is no such run of the grid {plan.name!r} in {store.where}",
            f"True, or a run of that grid (its id, last~1, a name of `benchax baseline`); the newest are: {listed}",
        )
    return matching[0]


def _rows(store: Any, plan: Plan, run: str) -> dict[Key, Measurement]:
    keys = {plan.case_id(function, point.label): (function, point.label) for function, point in plan.cells}
    # The newest row of a cell wins: oldest first, so later ones replace it.
    return {keys[row.case]: row for row in store.query(run=run) if row.case in keys}


def refuse_others(found: Earlier, plan: Plan, timer: str, environments: Sequence[Environment]) -> None:
    """Raises `UsageError` if the rows of `found` and the new ones cannot be in one grid.

    Args:
        environments: the environments of the nodes that measure. With several nodes, rows have several environments,
            but compared rows have the same one (`ranking.py`). A node that is gone can have measured some.
    """
    for row in found.rows.values():
        samples = row.headline
        there: dict[str, Any] = {"seed": row.options.seed, "timer": row.options.timer}
        here: dict[str, Any] = {"seed": plan.seed, "timer": timer}
        if samples is not None and row.failure is None:
            there["trials"], here["trials"] = len(samples.trials or ()), plan.trials
        if len(environments) == 1:
            there["environment"] = row.environment.fingerprint
            here["environment"] = environments[0].fingerprint
        for name, value in there.items():
            if value != here[name]:
                raise UsageError(
                    f"the run {found.run_id} was measured with {name} {value}, and this grid has {here[name]}",
                    "the same in one grid: its cells could not be compared otherwise",
                    "leave out resume= to measure all cells",
                )
