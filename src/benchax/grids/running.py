"""Runs the cells of a plan one after the other, each in a worker that can be killed, and stores each before the next.

Whatever a cell does, the run goes on with the next one: a cell that took too long, crashed or raised is a row with a
failure, which keeps what was measured before. Ctrl-C ends the run; the finished cells are there, and stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean as mean
from time import monotonic
from typing import Any, Protocol

import numpy as np

from benchax.environment import capture
from benchax.errors import BenchaxError, StoreError
from benchax.grids import cell as worker_side
from benchax.grids import trees
from benchax.grids.agreement import Agreement, agreement
from benchax.grids.limits import LEAST_TURN_S, Limits, allowance, of_the_total
from benchax.grids.plan import DataPoint, Label, Plan, trial_seed
from benchax.grids.result import Cell
from benchax.grids.resume import Key
from benchax.grids.trial_readings import join_trials
from benchax.json_values import decode_value
from benchax.model import (
    Absent,
    Cost,
    Environment,
    Failure,
    Measurement,
    Memory,
    Noise,
    Options,
    Remark,
    Samples,
    Stages,
)
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.units import seconds
from benchax.workers.call_limits import CallLimits
from benchax.workers.task import A, R, Task

SHAPE_REMARK = "output-shape"
SHOWN_AS = {"start": "trace", "compile": "compile, run"}
"""Steps of a cell by what may be going on until the next one is told: what hangs there tells no more."""
RECENT = 200
"""Cells by which it is judged how long the others will take."""


class Runner(Protocol):
    """What is needed of `workers.pool.Pool`."""

    def call(
        self,
        task: Task[A, R],
        argument: A,
        limits: CallLimits = ...,
        *,
        shows_output: bool = ...,
        on_message: Callable[[dict[str, Any]], None] = ...,
    ) -> R | Failure: ...
    def prepare(self) -> None: ...


@dataclass(frozen=True)
class CellSettings:
    """How the cells are measured."""

    limits: Limits
    options: Options
    check: Callable[..., Any] | None = None
    reference: str | None = None
    """The function whose outputs the others are compared with; None compares nothing."""
    memory_limit_bytes: int | None = None
    output_limit_bytes: int = 2**30


@dataclass
class GridRun:
    """One run of a plan, as far as it has come."""

    plan: Plan
    settings: CellSettings
    run_id: str
    pool: Runner
    store: Any = None
    report: Listener = quiet
    cells: dict[Key, Cell] = field(default_factory=dict)
    unstored: list[tuple[Measurement, BenchaxError]] = field(default_factory=list)
    environment: Environment = field(default_factory=lambda: capture(with_jax=False))
    clock: Callable[[], float] = monotonic
    """Seconds; for tests."""
    begun: float = field(init=False)
    spent_s: list[float] = field(default_factory=list)
    """The seconds that were spent on each of the cells of this run."""
    expected: dict[Label, tuple[str, str]] = field(default_factory=dict)
    """Per data point: the shape that outputs must have, and the function that gave it."""
    kept_bytes: int = 0
    examined: set[str] = field(default_factory=set[str])
    """Functions of which a cell has been measured."""

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.begun

    def start(self) -> None:
        """Workers ready, and their environment known: no cell pays for that."""
        self.pool.prepare()
        limits = CallLimits(lambda stage: self.settings.limits.compile_s)
        found = self.pool.call(worker_side.capture_environment, None, limits)
        if not isinstance(found, Failure):
            self.environment = found

    def take(self, rows: Mapping[Key, Measurement]) -> None:
        """Cells that an earlier run has measured."""
        for (function, label), row in rows.items():
            absent = Absent("outputs", "the cell was measured in an earlier run, and outputs are not stored")
            self.cells[function, label] = Cell(function, label, row, absent, replace(absent, what="agreement"))
            shape = next((remark.message for remark in row.remarks if remark.code == SHAPE_REMARK), "")
            if row.failure is None and shape:
                self.expected.setdefault(label, (shape, function))

    def go(self) -> None:
        """Measures every cell that is missing. Raises KeyboardInterrupt after Ctrl-C, with all cells accounted for."""
        missing = [(f, point) for f, point in self._in_order() if (f, point.label) not in self.cells]
        try:
            with self.store.held_open() if self.store is not None else nullcontext():
                for i, (function, point) in enumerate(missing):
                    self._one(function, point, missing[i:])
        except KeyboardInterrupt:
            # The first cell that no time was noted for: it was being measured.
            self._account("interrupted", "Ctrl-C came while it was measured", missing[len(self.spent_s) :][:1])
            self._account("not_run", "the run was interrupted before its turn", missing)
            raise

    def _in_order(self) -> list[tuple[str, DataPoint]]:
        """Within a data point the reference comes first, so that each cell can be compared as soon as it is there."""
        position = {label: i for i, label in enumerate(self.plan.labels)}
        return sorted(self.plan.cells, key=lambda cell: (position[cell[1].label], cell[0] != self.settings.reference))

    def _one(self, function: str, point: DataPoint, left: Sequence[tuple[str, DataPoint]]) -> None:
        if (function, point.label) in self.cells:  # accounted for already
            return
        share_s, total_s = None, self.settings.limits.total_s
        if total_s is not None:
            remaining_s = total_s - self.elapsed_s
            if remaining_s < LEAST_TURN_S:
                self._account("not_run", f"the {seconds(total_s)} for the whole grid were spent before its turn", left)
                return
            share_s = allowance(remaining_s, len(left), self.spent_s[-RECENT:])
        begun = self.clock()
        cell = self._measure(function, point, share_s, len(left))
        self._keep(cell)
        spent_s = self.clock() - begun
        self.spent_s.append(spent_s)
        self.cells[function, point.label] = replace(self.cells[function, point.label], spent_s=spent_s)

    def _measure(self, function: str, point: DataPoint, share_s: float | None, left: int) -> Cell:
        told: dict[str, Any] = {"stage": "start"}

        def listen(message: dict[str, Any]) -> None:
            _collect(told, message)
            self._report(function, point.label, told["stage"], left)

        self._report(function, point.label, "start", left)
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        begun = self.clock()
        answer = self.pool.call(
            worker_side.measure_cell,
            self._request(function, point),
            CallLimits(self.settings.limits.of, share_s, self.settings.memory_limit_bytes),
            shows_output=False,
            on_message=listen,
        )
        facts, arrays = (told, ()) if isinstance(answer, Failure) else (told | answer[0], answer[1])
        failure = answer if isinstance(answer, Failure) else _failure(facts)
        is_timeout = failure is not None and failure.kind == "timeout"
        if failure is not None and is_timeout and share_s is not None and self.clock() - begun >= share_s:
            failure = of_the_total(failure, self.settings.limits.total_s or share_s, share_s)
        row = self._row(function, point, facts, failure, started_at)
        return self._cell(function, point.label, row, facts, arrays)

    def _request(self, function: str, point: DataPoint) -> worker_side.CellRequest:
        shape, giver = self.expected.get(point.label, ("", ""))
        examines = function not in self.examined
        self.examined.add(function)
        return worker_side.CellRequest(
            function,
            self.plan.functions[function],
            point,
            tuple(trial_seed(self.plan.seed, point.label, i) for i in range(self.plan.trials)),
            self.settings.options,
            self.settings.check,
            shape,
            giver,
            self.settings.output_limit_bytes - self.kept_bytes,
            examines,
        )

    def _row(
        self, function: str, point: DataPoint, facts: Mapping[str, Any], failure: Failure | None, started_at: str
    ) -> Measurement:
        trials = (decode_value(each, Samples) for each in facts.get("trials", ()))
        shape = facts.get("shape")
        return Measurement(
            case=self.plan.case_id(function, point.label),
            environment=self.environment,
            options=self.settings.options,
            run_id=self.run_id,
            started_at=started_at,
            signature=facts.get("signature", ""),
            failure=failure,
            stages=Stages(**facts.get("stages", {})),
            samples=join_trials(trials),
            memory=Memory(**facts.get("memory", {})),
            cost=Cost(**facts["cost"]) if facts.get("cost") else None,
            noise=Noise(**facts.get("noise", {})),
            remarks=(
                *((Remark(SHAPE_REMARK, "info", shape),) if shape else ()),
                *(Remark(**each) for each in facts.get("remarks", ())),
            ),
            not_measured=tuple(Absent(**each) for each in facts.get("absent", ())),
        )

    def _cell(
        self, function: str, label: Label, row: Measurement, facts: Mapping[str, Any], arrays: Sequence[np.ndarray]
    ) -> Cell:
        if row.failure is not None:
            absent = Absent("outputs", f"the cell has the status {row.failure.kind.replace('_', ' ')}")
            return Cell(function, label, row, absent, replace(absent, what="agreement"))
        if facts["not_kept"]:
            return Cell(
                function, label, row, Absent("outputs", facts["not_kept"]), Absent("agreement", facts["not_kept"])
            )
        outputs = tuple(
            trees.put_together(each["tree"], arrays[each["first"] : each["first"] + each["count"]])
            for each in facts["outputs"]
        )
        self.kept_bytes += trees.size_bytes(arrays)
        compared = self._compare(function, label, outputs)
        remark = _difference(compared)
        row = replace(row, remarks=(*row.remarks, *((remark,) if remark else ())))
        return Cell(function, label, row, outputs, compared)

    def _compare(self, function: str, label: Label, outputs: tuple[Any, ...]) -> tuple[Agreement, ...] | Absent:
        reference = self.settings.reference
        if reference is None:
            return Absent("agreement", "the grid was asked not to compare outputs")
        if function == reference:
            return Absent("agreement", "it is the function that others are compared with")
        other = self.cells.get((reference, label))
        if other is None or isinstance(other.outputs, Absent):
            why = other.outputs.why if other is not None and isinstance(other.outputs, Absent) else "it was not run"
            return Absent("agreement", f"there are no outputs of {reference} to compare with: {why}")
        return tuple(agreement(a, b, reference) for a, b in zip(outputs, other.outputs, strict=True))

    def _keep(self, cell: Cell) -> None:
        """Stores the row; a grid whose rows cannot be stored is still a grid."""
        self.cells[cell.function, cell.data] = cell
        if cell.status == "ok":
            shape = next((r.message for r in cell.measurement.remarks if r.code == SHAPE_REMARK), "")
            self.expected.setdefault(cell.data, (shape, cell.function))
        if self.store is not None:
            try:
                self.store.append(cell.measurement)
            except StoreError as error:
                self.unstored.append((cell.measurement, error))

    def _account(self, kind: Any, why: str, left: Sequence[tuple[str, DataPoint]]) -> None:
        """Cells without a turn: in the result, not in the store, so that `resume` finds them missing."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        for function, point in left:
            if (function, point.label) not in self.cells:
                row = self._row(function, point, {}, Failure(kind, "start", why), now)
                absent = Absent("outputs", why)
                self.cells[function, point.label] = Cell(function, point.label, row, absent, absent)

    def _report(self, function: str, label: Label, stage: str, left: int) -> None:
        total = len(self.plan.functions) * len(self.plan.points)
        left_s = mean(self.spent_s[-RECENT:]) * left if self.spent_s else None
        if self.settings.limits.total_s is not None and left_s is not None:
            left_s = max(0.0, min(left_s, self.settings.limits.total_s - self.elapsed_s))
        cell = f"{function}[{self.plan.axis}={label}]"
        self.report(ProgressEvent(cell, SHOWN_AS.get(stage, stage), total - left, total, left_s))


def _collect(told: dict[str, Any], message: dict[str, Any]) -> None:
    """What a worker told on its way: all that is left if it never answers."""
    for name, value in message.items():
        if name == "new_trials":
            told.setdefault("trials", []).extend(value)
        elif name != "again":
            told[name] = value


def _failure(facts: Mapping[str, Any]) -> Failure | None:
    return Failure(**facts["failure"]) if facts.get("failure") else None


def _difference(compared: tuple[Agreement, ...] | Absent) -> Remark | None:
    if isinstance(compared, Absent):
        return None
    first = next((each for each in compared if not each.agrees), None)
    return Remark("outputs-differ", "info", f"not the result of {first.reference}: {first.why}") if first else None
