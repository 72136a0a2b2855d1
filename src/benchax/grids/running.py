"""Runs the cells of a plan one after the other, each in a worker that can be killed. Stores each before the next.

Whatever a cell does, the run goes on with the next one. A cell that took too long, crashed or raised is a row with a
failure, which keeps the earlier measurements. Ctrl-C ends the run; the finished cells are available and stored.

Limits are wall-clock seconds; the pool (`workers/pool.py`) keeps them, with SIGKILL. Each step has a budget of its own:
time to compile is never taken from the time to run.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean, median
from time import monotonic
from typing import Any

from benchax.clusters.agents import Agents, Dispatcher, Node, WorkBatch
from benchax.errors import BenchaxError, StoreError
from benchax.grids.cell import CellAnswer, CellRequest, join_trials, measure_cell
from benchax.grids.outputs import agreement, put_together, size_bytes
from benchax.grids.plan import DataPoint, Key, Label, Plan, trial_seed
from benchax.grids.result import Cell
from benchax.measuring.record import keep_news, row_fields
from benchax.model import Absent, Environment, Failure, Measurement, Numerics, Options, Remark
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.units import read_duration, seconds, size
from benchax.workers.pickling import Sealed, seal
from benchax.workers.task import CallLimits

SHAPE_REMARK = "output-shape"
SHOWN_AS = {"start": "trace", "compile": "compile, run"}
"""Steps of a cell, described by the work until the next report. If a cell hangs in it, nothing more is known."""
COMPILE_LEAST_S = 60.0
"""The shortest limit for compiling, if the user gives no limit."""
LEAST_TURN_S = 0.02
"""With less than this left in total a cell does not begin: it could not even be sent."""
_WHERE = re.compile(r"\(at .*\)$")
CALLS = ("trace", "run", "check")
"""The steps in which the user's function itself runs in Python or on the device; the others compile or copy."""
RECENT = 200
"""Cells by which it is judged how long the others will take."""


@dataclass(frozen=True)
class CellJob:
    """The measurement of a cell, as an agent makes it."""

    request: CellRequest | Sealed
    limits: CallLimits

    def __call__(self, pool: Any, on_message: Callable[[dict[str, Any]], None]) -> Any:
        return pool.call(measure_cell, self.request, self.limits, shows_output=False, on_message=on_message)

    def seal(self) -> CellJob:
        return self if isinstance(self.request, Sealed) else replace(self, request=seal(self.request, "the argument"))


@dataclass
class CellAttempt:
    """A cell that is being measured."""

    node: Node
    begun: float
    started_at: str
    share_s: float | None
    left: int
    facts: dict[str, Any] = field(default_factory=lambda: {"stage": "start"})
    """The reported facts about the cell."""


@dataclass(frozen=True)
class Limits:
    """`None`: no limit."""

    call_s: float | None
    """Tracing, and every single call."""
    compile_s: float | None
    """Lowering, compiling, making inputs (which compiles too), sending and fetching."""
    total_s: float | None
    """The whole grid."""

    def of(self, stage: str) -> float | None:
        """Seconds that `stage` of a cell may take."""
        return self.call_s if stage in CALLS else self.compile_s


def limits(timeout_s: Any, compile_timeout_s: Any, total_timeout_s: Any) -> Limits:
    """The limits in force. Without a limit for compiling, it gets as long as a call, and at least a minute.

    Raises:
        UsageError: a limit is not a time above 0.
    """
    call_s = read_duration("timeout_s", timeout_s)
    compile_s = read_duration("compile_timeout_s", compile_timeout_s)
    if compile_s is None and call_s is not None:
        compile_s = max(COMPILE_LEAST_S, call_s)
    return Limits(call_s, compile_s, read_duration("total_timeout_s", total_timeout_s))


@dataclass(frozen=True)
class GridSpec:
    """A grid as it was asked for, checked."""

    plan: Plan
    limits: Limits
    options: Options
    check: Callable[..., Any] | None = None
    reference: str | None = None
    """The function whose outputs the others are compared with; None compares nothing."""
    output_limit_bytes: int = 2**30
    fill: float | None = None
    clip: tuple[float, float] | None = None
    nan_to_num: bool = False
    resume: str | bool | None = None


@dataclass
class GridRun:
    """One run of a grid, as far as it has come."""

    spec: GridSpec
    run_id: str
    agents: Agents
    store: Any = None
    report: Listener = quiet
    cells: dict[Key, Cell] = field(default_factory=dict)
    unstored: list[tuple[Measurement, BenchaxError]] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list[Node])
    """Those that were ready at the start."""
    clock: Callable[[], float] = monotonic
    """Seconds; for tests."""
    begun: float = field(init=False)
    spent_s: deque[float] = field(default_factory=lambda: deque[float](maxlen=RECENT))
    """The seconds that were spent on each of the newest cells of this run."""
    expected: dict[Label, tuple[str, str]] = field(default_factory=dict)
    """Per data point: the shape that outputs must have, and the function that gave it."""
    kept_bytes: int = 0
    examined: set[str] = field(default_factory=set[str])
    """Functions with at least one measured cell."""
    attempts: dict[Key, CellAttempt] = field(default_factory=dict)
    """The attempts of the cells that are being measured."""
    left: int = 0
    """Cells that have had no turn."""
    dispatcher: Dispatcher[tuple[str, DataPoint]] | None = None

    def __post_init__(self) -> None:
        self.begun = self.clock()

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.begun

    @property
    def environment(self) -> Environment:
        """The environment of the first node; also for cells that did not start."""
        return self.nodes[0].environment

    @property
    def node_count(self) -> int:
        return max(1, self.dispatcher.node_count if self.dispatcher else len(self.nodes))

    def start(self) -> None:
        """Workers ready, and their environment known: no cell pays for that."""
        needed = (dict(self.spec.plan.functions), self.spec.check, next(iter(self.spec.plan.points)).make)
        self.nodes = self.agents.start(needed, CallLimits(lambda stage: self.spec.limits.compile_s))

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
        self.left = len(self.spec.plan.functions) * len(self.spec.plan.points) - len(self.cells)
        self.dispatcher = Dispatcher(self.agents, self.nodes, self._batches(), self._begin, self._listen)
        try:
            with self.store.held_open() if self.store is not None else nullcontext():
                for group in self.dispatcher.groups():
                    cells = [self._finish(*ended.item, ended.outcome) for ended in group]
                    self._store([cell.measurement for cell in cells])
                    self._note_time(cells)
        except KeyboardInterrupt:
            running = [item for item, _ in self.dispatcher.running.values()]
            self._account("interrupted", "Ctrl-C came while it was measured", running)
            self._account("not_run", "the run was interrupted before its turn", self.spec.plan.cells)
            raise
        if self.dispatcher.lost:
            why = "; ".join(list(self.dispatcher.lost.values())[-3:])
            self._account("not_run", f"no node is left: {why}", self.spec.plan.cells)

    def _batches(self) -> Iterator[WorkBatch[tuple[str, DataPoint]]]:
        """One node measures all cells of a data point, the reference first. So each of the others can be compared as
        soon as it ends."""
        first = self.spec.reference
        functions = sorted(self.spec.plan.functions, key=lambda function: function != first)
        for point in self.spec.plan.points:
            earlier = (cell for f in functions if (cell := self.cells.get((f, point.label))) is not None)
            host = next((cell.measurement.environment.host for cell in earlier), "")
            yield WorkBatch(deque((f, point) for f in functions if (f, point.label) not in self.cells), host)

    def _begin(self, item: tuple[str, DataPoint], node: Node) -> CellJob | None:
        """The cell has its turn; None if there is no time left for it."""
        function, point = item
        # One whose node was lost has its turn once more.
        is_again = self.attempts.pop((function, point.label), None) is not None
        share_s, total_s, left = None, self.spec.limits.total_s, self.left + is_again
        if total_s is not None:
            remaining_s = total_s - self.elapsed_s
            if remaining_s < LEAST_TURN_S:
                self.left = left - 1
                why = f"the {seconds(total_s)} for the whole grid were spent before its turn"
                self._account("not_run", why, [item])
                return None
            share_s = min(remaining_s, allowance(remaining_s * self.node_count, left, self.spent_s))
        begun, started_at = self.clock(), datetime.now(UTC).isoformat(timespec="microseconds")
        self.attempts[function, point.label] = CellAttempt(node, begun, started_at, share_s, left)
        self._report(function, point.label, "start", left)
        self.left = left - 1
        limits = CallLimits(self.spec.limits.of, share_s, self.spec.options.memory_limit_bytes)
        return CellJob(self._request(function, point), limits)

    def _listen(self, item: tuple[str, DataPoint], message: dict[str, Any]) -> None:
        function, point = item
        attempt = self.attempts[function, point.label]
        keep_news(attempt.facts, message)
        self._report(function, point.label, attempt.facts["stage"], attempt.left)

    def _finish(self, function: str, point: DataPoint, answer: Any) -> Cell:
        """The cell is judged and compared."""
        attempt = self.attempts[function, point.label]
        share_s, failure, not_kept = attempt.share_s, answer, ""
        outputs: tuple[Any, ...] = ()
        if isinstance(answer, CellAnswer):
            failure, outputs, not_kept = answer.failure, answer.outputs, answer.not_kept
        is_timeout = failure is not None and failure.kind == "timeout"
        if failure is not None and is_timeout and share_s is not None and self.clock() - attempt.begun >= share_s:
            failure = of_the_total(failure, self.spec.limits.total_s or share_s, share_s)
        row = self._row(function, point, attempt.facts, failure, attempt.started_at, attempt.node.environment)
        cell = self._cell(function, point.label, row, outputs, not_kept)
        self.cells[function, point.label] = cell
        if cell.status == "ok":
            self.expected.setdefault(cell.data, (attempt.facts["shape"], cell.function))
        return cell

    def _store(self, rows: Sequence[Measurement]) -> None:
        """Before any of their nodes has its next cell; a grid whose rows cannot be stored is still a grid."""
        if self.store is None:
            return
        with suppress(StoreError):  # then one by one, which says of which rows it is true
            if len(rows) > 1:
                self.store.append_all(rows)
                return
        for row in rows:
            try:
                self.store.append(row)
            except StoreError as error:
                self.unstored.append((row, error))

    def _note_time(self, cells: Sequence[Cell]) -> None:
        now = self.clock()
        for cell in cells:
            spent_s = now - self.attempts.pop((cell.function, cell.data)).begun
            self.spent_s.append(spent_s)
            self.cells[cell.function, cell.data] = replace(cell, spent_s=spent_s)

    def _request(self, function: str, point: DataPoint) -> CellRequest:
        shape, giver = self.expected.get(point.label, ("", ""))
        examines = function not in self.examined
        self.examined.add(function)
        return CellRequest(
            function,
            self.spec.plan.functions[function],
            point,
            tuple(trial_seed(self.spec.plan.seed, point.label, i) for i in range(self.spec.plan.trials)),
            self.spec.options,
            self.spec.check,
            shape,
            giver,
            self.spec.output_limit_bytes - self.kept_bytes,
            examines,
        )

    def _row(
        self,
        function: str,
        point: DataPoint,
        facts: Mapping[str, Any],
        failure: Failure | None,
        started_at: str,
        environment: Environment,
    ) -> Measurement:
        row = Measurement(
            case=self.spec.plan.case_id(function, point.label),
            environment=environment,
            options=self.spec.options,
            run_id=self.run_id,
            started_at=started_at,
            failure=failure,
            **row_fields(facts),
        )
        shape = (Remark(SHAPE_REMARK, "info", facts["shape"]),) if facts.get("shape") else ()
        return replace(row, samples=join_trials(row.samples), remarks=(*shape, *row.remarks))

    def _cell(self, function: str, label: Label, row: Measurement, outputs: tuple[Any, ...], not_kept: str) -> Cell:
        if row.failure is not None:
            absent = Absent("outputs", f"the cell has the status {row.failure.kind.replace('_', ' ')}")
            return Cell(function, label, row, absent, replace(absent, what="agreement"))
        # Workers keep to what was left when they began; on several nodes others have ended since.
        limit, taken = self.spec.output_limit_bytes, size_bytes(outputs)
        if not not_kept and self.kept_bytes + taken > limit:
            not_kept = f"they would be more than the {size(limit)} that this grid keeps of outputs"
        if not_kept:
            return Cell(function, label, row, Absent("outputs", not_kept), Absent("agreement", not_kept))
        self.kept_bytes += taken
        outputs = tuple(map(put_together, outputs))
        compared = self._compare(function, label, outputs)
        trials = () if isinstance(compared, Absent) else compared
        if differs := next((each for each in trials if not each.agrees), None):
            text = f"not the result of {self.spec.reference}: {differs.why}"
            row = replace(row, remarks=(*row.remarks, Remark("outputs-differ", "info", text)))
        return Cell(function, label, row, outputs, compared)

    def _compare(self, function: str, label: Label, outputs: tuple[Any, ...]) -> tuple[Numerics, ...] | Absent:
        reference = self.spec.reference
        if reference is None:
            return Absent("agreement", "the grid was asked not to compare outputs")
        if function == reference:
            return Absent("agreement", "it is the function that others are compared with")
        other = self.cells.get((reference, label))
        if other is None or isinstance(other.outputs, Absent):
            why = other.outputs.why if other is not None and isinstance(other.outputs, Absent) else "it was not run"
            return Absent("agreement", f"there are no outputs of {reference} to compare with: {why}")
        return tuple(agreement(a, b) for a, b in zip(outputs, other.outputs, strict=True))

    def _account(self, kind: Any, why: str, left: Sequence[tuple[str, DataPoint]]) -> None:
        """Cells without a turn: in the result, not in the store, so that `resume` finds them missing."""
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        for function, point in left:
            if (function, point.label) not in self.cells:
                row = self._row(function, point, {}, Failure(kind, "start", why), now, self.environment)
                absent = Absent("outputs", why)
                self.cells[function, point.label] = Cell(function, point.label, row, absent, absent)

    def _report(self, function: str, label: Label, stage: str, left: int) -> None:
        total = len(self.spec.plan.functions) * len(self.spec.plan.points)
        left_s = fmean(self.spent_s) * left / self.node_count if self.spent_s else None
        if self.spec.limits.total_s is not None and left_s is not None:
            left_s = max(0.0, min(left_s, self.spec.limits.total_s - self.elapsed_s))
        cell = f"{function}[{self.spec.plan.axis}={label}]"
        self.report(ProgressEvent(cell, SHOWN_AS.get(stage, stage), total - left, total, left_s))


def allowance(remaining_s: float, cells_left: int, finished_s: Sequence[float]) -> float:
    """Seconds that the next cell can use of the remaining total.

    It is at least the equal share. It is more if the others need less than their shares. Suppose that all others take
    as long as a usual cell (the median of the finished ones): the cell gets half of the rest. The half makes sure that
    each of many cells that never end gets some time: the first a half, the next a quarter, and at last the equal share.

    Args:
        remaining_s: of the total, before this cell.
        cells_left: this one and those after it.
        finished_s: how long each finished cell took.
    """
    usual_s = median(finished_s) if finished_s else 0.0
    slack_s = remaining_s - usual_s * (cells_left - 1)
    return max(remaining_s / cells_left, slack_s / 2)


def of_the_total(failure: Failure, total_s: float, share_s: float) -> Failure:
    """A cell that was stopped because its share was over, and not for the limit of a step, says so."""
    where = _WHERE.search(failure.message)
    said = f"stopped after {seconds(share_s)}, its share of the {seconds(total_s)} for the whole grid"
    advice = "Give the grid more time, fewer cells, or a smaller timeout_s."
    return replace(failure, message=said + (f" {where[0]}" if where else ""), advice=advice)
