"""`grid`: functions × data, each cell with its output, its time and its status, under limits that always hold.

Every cell runs in a worker process that is killed when it takes too long. So a grid always ends, whatever its functions
do. A cell that took too long, crashed or raised is a row with a failure, which keeps the earlier measurements. Each
finished cell is one row of the store, durable before its node begins the next one. Ctrl-C ends the run; the finished
cells are available and stored.

Limits are wall-clock seconds; the pool (`workers/pool.py`) keeps them, with SIGKILL. Each step has a separate budget:
time to compile is never taken from the time to run.
"""

from __future__ import annotations

import inspect
import os
import re
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import fmean, median
from time import monotonic
from typing import Any

from benchax.clusters import open_agents
from benchax.clusters.agents import Agents, Dispatcher, Node, WorkBatch
from benchax.errors import BenchaxError, StoreError, UsageError, one_of
from benchax.grids.cell import CellAnswer, CellRequest, join_trials, measure_cell
from benchax.grids.outputs import agreement, checked_clip, put_together, size_bytes
from benchax.grids.plan import DataPoint, Key, Label, Plan, plan, trial_seed
from benchax.grids.rendering import shares
from benchax.grids.result import Cell, GridResult
from benchax.keywords import guard_keywords
from benchax.measuring import timers
from benchax.measuring.record import keep_news, row_fields
from benchax.model import Absent, CaseId, Failure, Measurement, Numerics, Options, Remark
from benchax.options import resolve
from benchax.progress import Listener, Progress, ProgressEvent, quiet, show_progress
from benchax.store.baselines import find_run
from benchax.store.database import open_store
from benchax.store.schema import Row
from benchax.units import parse_size, read_duration, seconds, size
from benchax.workers.pickling import Sealed, seal
from benchax.workers.task import CallLimits

OUTPUT_LIMIT = "1GiB"
TIMEOUT_S = float("30")
"""The default, and no other 30.0: a call that says 30.0 wins over the environment, and the default doesn't."""
DEFAULTS_OF_GRID = {"timer": "wall", "timeout_s": TIMEOUT_S, "memory": False}
SHAPE_REMARK = "output-shape"
SHAPE_WORDS = "the result has the shape "
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


@guard_keywords()
def grid(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    data: Iterable[Any] | Mapping[Any, Any],
    *,
    make: Callable[[Any, Any], Any] | None = None,
    timeout_s: float | str | None = TIMEOUT_S,
    compile_timeout_s: float | str | None = None,
    total_timeout_s: float | str | None = None,
    trials: int = 1,
    seed: int | None = None,
    timer: str | None = None,
    check: Callable[..., Any] | None = None,
    compare: bool | str = True,
    fill: float | None = None,
    clip: tuple[float, float] | None = None,
    nan_to_num: bool = False,
    memory: bool | None = None,
    memory_limit_bytes: int | str | None = None,
    output_limit_bytes: int | str = OUTPUT_LIMIT,
    resume: str | bool | None = None,
    store: str | os.PathLike[str] | bool | None = None,
    name: str = "grid",
    axis: str = "data",
    progress: Progress = None,
    on: str | None = None,
) -> GridResult:
    """Runs every function on every data point: outputs, times and statuses. A call that runs too long is killed.

        benchax.grid([f1, f2, f3], [4, 8, 16], make=lambda key, n: jax.random.normal(key, (n,)), trials=10, axis="n_x")

    Args:
        functions: plain ones (run as `jax.jit(f)`) or jitted ones, in a list or by name. In a list they have their own
            names; a second function with the same name is called `name#2`. They take one data point; a tuple is
            splatted.
        data: data points, in a list or by label. A point is an array, a pytree, a tuple of inputs, a spec such as
            "f32[8]" (seeded random data), or a function of a key that makes inputs. In a list, the label is the value,
            spec or shape.
        make: makes the inputs of a data point: `make(key, point)`. Then data points can be anything, such as sizes.
        timeout_s: for every single call of a function, and for tracing it: 30, or as the project sets it. None: no
            limit.
        compile_timeout_s: for compiling, making inputs and sending; default: as long as a call, but at least a minute.
        total_timeout_s: for the whole grid. A cell can use half of the time that the others are not expected to need,
            and at least its equal share. Cells that do not start are "not_run".
        trials: each on its own fresh inputs, if inputs are made or specs. Its figure is the median of calls
            repeated for about a millisecond (50 at most, 1 at least) after a first one; a first call of 10 ms and more
            is the reading itself.
        seed: the same seed gives the same inputs; they depend on the label and the trial, not on the functions.
            Default: the seed of the options, which is 0.
        timer: names separated by commas, or "auto", as for `bench`; table, `timings` and ranking use one of them
            (`GridResult.timer`). "wall", the default, is the latency of a call with the wait for its outputs. All other
            timers are prepared again for each trial, which takes about 0.2 s.
        check: `check(output, *inputs)`; False (or a text that says why) gives the status "wrong_shape". Without one,
            outputs must have the same structure and shapes as those of the first function that worked on the data
            point.
        compare: compares outputs with those of the first function, or of the named function; False: not at all.
        fill: stand-in for missing outputs, with `timeout_s` for missing times. Default: masked, never a number.
        clip, nan_to_num: how `.outputs` and `.stacked()` change outputs; the cells keep the measured ones.
        memory: observe by how much one call raises the memory of the process or of an accelerator, before the trials.
        memory_limit_bytes: for each cell, such as "4GiB".
        output_limit_bytes: for the outputs of the whole grid. Further outputs are dropped, and their place says so.
        resume: continues the run with this id, or, if True, the newest unfinished run of this name. Only missing cells
            are measured. Refused if seed, trials, timer or environment differ.
        store: folder of the database, or "off".
        name: of the grid, in the store and in figures.
        axis: the quantity that the data points vary: the name of the index in frames.
        progress: as for `bench`.
        on: a Ray cluster, whose nodes measure the data points: "ray" starts one on this machine and stops it again;
            "HOST:PORT" is a running cluster, and "ray://HOST:PORT" is one that you reach from outside. The default is
            this machine.

    The output that functions print is not shown. The end of a crashed function's output is in its row
    (`failure.traceback`).

    Raises:
        UsageError: an argument that cannot work; nothing has run then. Errors of the functions are never raised.
        KeyboardInterrupt: Ctrl-C; the finished cells are stored, and `resume=True` goes on with them.

    Example:
        >>> g = benchax.grid([jnp.sin, jnp.cos], ["f32[8]", "f32[16]"], compare=False, store="off")
        >>> g.status.tolist()
        [['ok', 'ok'], ['ok', 'ok']]
    """
    given = {
        "make": make, "timeout_s": timeout_s, "compile_timeout_s": compile_timeout_s,
        "total_timeout_s": total_timeout_s, "trials": trials, "seed": seed, "timer": timer, "check": check,
        "compare": compare, "fill": fill, "clip": clip, "nan_to_num": nan_to_num, "memory": memory,
        "memory_limit_bytes": memory_limit_bytes, "output_limit_bytes": output_limit_bytes, "resume": resume,
        "store": store, "name": name, "axis": axis,
    }  # fmt: skip
    spec = validate_spec(functions, data, given)
    with show_progress(progress) as report, open_agents(on) as agents:
        run = start_run(spec, agents, report)
        run.go()
    for _, error in run.unstored:
        # 3 frames up is the caller of `grid`, outside its guard.
        warnings.warn(f"a cell was measured but not stored: {error}", stacklevel=3)
    return result_of(run)


def defaults() -> dict[str, Any]:
    """The arguments of `grid` in addition to functions and data, with their defaults; without `progress` and `on`."""
    parameters = inspect.signature(grid).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("progress", "on")}


def validate_spec(functions: Any, data: Any, given: Mapping[str, Any]) -> GridSpec:
    """`given` has all of `defaults()`. Raises `UsageError` for whatever is not permitted."""
    options = _resolve(given)
    planned = plan(
        functions, data, make=given["make"], trials=given["trials"], seed=options.seed, name=given["name"],
        axis=given["axis"],
    )  # fmt: skip
    if given["check"] is not None and not callable(given["check"]):
        raise UsageError(f"check={given['check']!r} of a grid", "a function of an output and its inputs, or None")
    fill = given["fill"]
    if fill is not None and (isinstance(fill, bool) or not isinstance(fill, int | float)):
        raise UsageError(f"fill={fill!r} of a grid", "a number that replaces missing outputs, or None")
    return GridSpec(
        planned,
        limits(options.timeout_s, given["compile_timeout_s"], given["total_timeout_s"]),
        options,
        given["check"],
        _reference(planned, given["compare"]),
        parse_size(given["output_limit_bytes"]),
        fill,
        checked_clip(given["clip"]),
        bool(given["nan_to_num"]),
        given["resume"],
    )


def _resolve(given: Mapping[str, Any]) -> Options:
    """The options of the cells."""
    named = {name: given[name] for name in ("timer", "memory", "memory_limit_bytes", "seed", "store")}
    timeout_s = read_duration("timeout_s", given["timeout_s"])
    if given["timeout_s"] is not TIMEOUT_S:
        named["timeout_s"] = timeout_s
    options = resolve(named, defaults=DEFAULTS_OF_GRID)
    timers.parse(options.timer)
    return replace(
        options,
        # None, which is not given elsewhere, is no limit here.
        timeout_s=None if timeout_s is None else options.timeout_s,
        verify="off",
        stages="samples",
        isolate=True,
        cold_process=False,
        processes=1,
        nprocs=None,
    )


def _reference(planned: Plan, compare: Any) -> str | None:
    """The function that outputs are compared with; None if they are not."""
    if compare is False or (compare is True and len(planned.functions) < 2):
        return None
    if compare is True:
        return next(iter(planned.functions))
    if not isinstance(compare, str) or compare not in planned.functions:
        raise UsageError(f"compare={compare!r} of a grid", f"True, False, or {one_of(planned.functions, str(compare))}")
    return compare


def start_run(spec: GridSpec, agents: Agents, report: Listener, clock: Callable[[], float] = monotonic) -> GridRun:
    """A run with its workers ready, and with the cells of the run that it goes on with."""
    where, resume = spec.options.store, spec.resume
    store = None if where == "off" else open_store(where)
    if resume and store is None:
        raise UsageError(f"resume={resume!r} without a store", "a store, whose rows show what is finished")
    run_id, rows = earlier(store, spec.plan, resume) if resume else ("", {})
    # Start the workers and read their environment before the first cell, so that no cell pays for it.
    needed = (dict(spec.plan.functions), spec.check, next(iter(spec.plan.points)).make)
    begun = clock()
    nodes = agents.start(needed, CallLimits(lambda stage: spec.limits.compile_s))
    run = GridRun(spec, run_id or uuid.uuid4().hex, agents, nodes, begun, store, report, clock)
    refuse_others(run, rows)
    run.take(rows)
    return run


def result_of(run: GridRun) -> GridResult:
    """Returns the result of a run."""
    spec = run.spec
    return GridResult(
        name=spec.plan.name,
        axis=spec.plan.axis,
        functions=tuple(spec.plan.functions),
        data=spec.plan.labels,
        trials=spec.plan.trials,
        by_key=dict(run.cells),
        timeout_s=spec.limits.call_s,
        elapsed_s=run.elapsed_s,
        run_id=run.run_id,
        fill=spec.fill,
        clip=spec.clip,
        nan_to_num=spec.nan_to_num,
        reference=spec.reference,
        unstored=tuple(run.unstored),
        nodes=shares(run.dispatcher),
    )


# ---- a run ------------------------------------------------------------------------------------------------------


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
    share_s: float | None
    left: int
    facts: dict[str, Any] = field(default_factory=lambda: {"stage": "start"})
    """The reported facts about the cell."""
    started_at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="microseconds"))


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
    nodes: list[Node]
    """Those that were ready at the start."""
    begun: float
    store: Any = None
    report: Listener = quiet
    clock: Callable[[], float] = monotonic
    """Seconds; for tests."""
    cells: dict[Key, Cell] = field(default_factory=dict)
    unstored: list[tuple[Measurement, BenchaxError]] = field(default_factory=list)
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

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.begun

    @property
    def node_count(self) -> int:
        return max(1, self.dispatcher.node_count if self.dispatcher else len(self.nodes))

    def take(self, rows: Mapping[Key, Measurement]) -> None:
        """Cells that an earlier run has measured."""
        for (function, label), row in rows.items():
            absent = Absent("outputs", "the cell was measured in an earlier run, and outputs are not stored")
            self.cells[function, label] = Cell(function, label, row, absent, replace(absent, what="agreement"))
            shape = next((r.message.removeprefix(SHAPE_WORDS) for r in row.remarks if r.code == SHAPE_REMARK), "")
            if row.failure is None and shape:
                self.expected.setdefault(label, (shape, function))

    def go(self) -> None:
        """Measures every cell that is missing. Raises KeyboardInterrupt after Ctrl-C, with all cells accounted for."""
        self.left = len(self.spec.plan.functions) * len(self.spec.plan.points) - len(self.cells)
        self.dispatcher = Dispatcher(self.agents, self.nodes, self._batches(), self._begin, self._listen)
        try:
            with self.store.held_open() if self.store is not None else nullcontext():
                for group in self.dispatcher.groups():
                    self._store([self._finish(*ended.item, ended.outcome) for ended in group])
        except KeyboardInterrupt:
            running = [item for item, _ in self.dispatcher.running.values()]
            self._account("interrupted", "Ctrl-C came while it was measured", running)
            self._account("not_run", "the run was interrupted before it", self.spec.plan.cells)
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
        # A cell whose node was lost runs again.
        is_again = self.attempts.pop((function, point.label), None) is not None
        share_s, total_s, left = None, self.spec.limits.total_s, self.left + is_again
        if total_s is not None:
            remaining_s = total_s - self.elapsed_s
            if remaining_s < LEAST_TURN_S:
                self.left = left - 1
                why = f"the {seconds(total_s)} for the whole grid were spent before it could run"
                self._account("not_run", why, [item])
                return None
            share_s = min(remaining_s, allowance(remaining_s * self.node_count, left, self.spent_s))
        self.attempts[function, point.label] = CellAttempt(node, self.clock(), share_s, left)
        self._report(function, point.label, "start", left)
        self.left = left - 1
        limits = CallLimits(self.spec.limits.of, share_s, self.spec.options.memory_limit_bytes)
        return CellJob(self._request(function, point), limits)

    def _listen(self, item: tuple[str, DataPoint], message: dict[str, Any]) -> None:
        function, point = item
        attempt = self.attempts[function, point.label]
        keep_news(attempt.facts, message)
        self._report(function, point.label, attempt.facts["stage"], attempt.left)

    def _finish(self, function: str, point: DataPoint, answer: Any) -> Measurement:
        """The cell is judged and compared; returns its row."""
        attempt = self.attempts.pop((function, point.label))
        spent_s, share_s, failure, not_kept = self.clock() - attempt.begun, attempt.share_s, answer, ""
        outputs: tuple[Any, ...] = ()
        if isinstance(answer, CellAnswer):
            failure, outputs, not_kept = answer.failure, answer.outputs, answer.not_kept
        if failure is not None and failure.kind == "timeout" and share_s is not None and spent_s >= share_s:
            failure = of_the_total(failure, self.spec.limits.total_s or share_s, share_s)
        row = self._row(function, point, failure, attempt)
        cell = replace(self._cell(function, point.label, row, outputs, not_kept), spent_s=spent_s)
        self.cells[function, point.label] = cell
        self.spent_s.append(spent_s)
        if cell.status == "ok":
            self.expected.setdefault(cell.data, (attempt.facts["shape"], cell.function))
        return cell.measurement

    def _store(self, rows: Sequence[Measurement]) -> None:
        """Before any of their nodes has its next cell; a grid whose rows cannot be stored is still a grid."""
        if self.store is None:
            return
        try:
            self.store.append_all(rows)
        except StoreError as error:
            if len(rows) > 1:  # one by one: then each row that cannot be stored has its reason
                for row in rows:
                    self._store([row])
            else:
                self.unstored.append((rows[0], error))

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

    def _row(self, function: str, point: DataPoint, failure: Failure | None, attempt: CellAttempt) -> Measurement:
        facts = attempt.facts
        row = Measurement(
            case=self.spec.plan.case_id(function, point.label),
            environment=attempt.node.environment,
            options=self.spec.options,
            run_id=self.run_id,
            started_at=attempt.started_at,
            failure=failure,
            **row_fields(facts),
        )
        shape = (Remark(SHAPE_REMARK, "info", f"{SHAPE_WORDS}{facts['shape']}"),) if facts.get("shape") else ()
        return replace(row, samples=join_trials(row.samples), remarks=(*shape, *row.remarks))

    def _cell(self, function: str, label: Label, row: Measurement, outputs: tuple[Any, ...], not_kept: str) -> Cell:
        # Workers keep to the time that was left when they began. On several nodes, others have ended since.
        limit, taken = self.spec.output_limit_bytes, size_bytes(outputs)
        if row.failure is not None:
            not_kept = f"the cell has the status {row.failure.kind.replace('_', ' ')}"
        elif not not_kept and self.kept_bytes + taken > limit:
            not_kept = f"they exceed the {size(limit)} of outputs that this grid keeps"
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
            return Absent("agreement", "comparing outputs is switched off (compare=False)")
        if function == reference:
            return Absent("agreement", "it is the function that others are compared with")
        other = self.cells.get((reference, label))
        if other is None or isinstance(other.outputs, Absent):
            why = other.outputs.why if other is not None and isinstance(other.outputs, Absent) else "it was not run"
            return Absent("agreement", f"there are no outputs of {reference} to compare with: {why}")
        return tuple(agreement(a, b) for a, b in zip(outputs, other.outputs, strict=True))

    def _account(self, kind: Any, why: str, left: Sequence[tuple[str, DataPoint]]) -> None:
        """Cells without a turn: in the result, not in the store, so that `resume` finds them missing."""
        for function, point in left:
            if (function, point.label) not in self.cells:
                # Uses the environment of the first node, also for cells that did not start.
                attempt = CellAttempt(self.nodes[0], 0.0, None, 0, {})
                row = self._row(function, point, Failure(kind, "start", why), attempt)
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


# ---- the rows of a grid that was not finished, so that only the missing cells are measured ----------------------
#
# A row counts if its cell was measured or failed. A cell that had no turn is in no store. Rows measured in another way
# (trials, seed, timer) or in another environment are refused: they cannot be in one grid with the rest.


def earlier(store: Any, plan: Plan, resume: str | bool) -> tuple[str, dict[Key, Measurement]]:
    """The run to go on with, and its finished cells; ("", {}) if `resume` is True and the store holds no unfinished run
    of this grid.

    Args:
        resume: the id of a run, its first digits, or a name for it. True means the newest unfinished run of a grid of
            this name.

    Raises:
        UsageError: no such run.
    """
    keys = {plan.case_id(function, point.label): (function, point.label) for function, point in plan.cells}
    rows: list[Row] = []
    with suppress(StoreError):  # nothing was ever stored there
        rows = [row for function in plan.functions for row in store.rows(case=function) if row.case in keys]
    # The cells that each run has rows of; oldest first, by their last rows.
    runs: dict[str, set[CaseId]] = {}
    for row in sorted(rows, key=lambda row: row.id):
        cells = runs.pop(row.run_id, set())
        cells.add(row.case)
        runs[row.run_id] = cells
    if resume is True:
        run = next((run for run, cells in reversed(runs.items()) if len(cells) < len(keys)), None)
        if run is None:
            return "", {}
    else:
        run = find_run(store, str(resume)) if runs else None  # without runs there may be no database either
        if run not in runs:
            listed = ", ".join(list(runs)[-5:]) or "none"
            raise UsageError(
                f"resume={resume!r}: there is no such run of the grid {plan.name!r} in {store.where}",
                f"True, or a run of that grid (its id, last~1, a name of `benchax baseline`); the newest are: {listed}",
            )
    # The newest row of a cell wins: oldest first, so later ones replace it.
    return run, {keys[row.case]: row for row in store.query(run=run) if row.case in keys}


def refuse_others(run: GridRun, rows: Mapping[Key, Measurement]) -> None:
    """Raises `UsageError` if these earlier rows and the new ones cannot be in one grid.

    With several nodes, rows have several environments, but compared rows have the same one (`rank`). A node that is
    gone can have measured some.
    """
    for row in rows.values():
        facts: list[tuple[str, object, object]] = [
            ("seed", row.options.seed, run.spec.plan.seed),
            ("timer", row.options.timer, run.spec.options.timer),
        ]
        if row.headline is not None and row.failure is None:
            facts.append(("trials", len(row.headline.trials or ()), run.spec.plan.trials))
        if len(run.nodes) == 1:
            facts.append(("environment", row.environment.fingerprint, run.nodes[0].environment.fingerprint))
        for name, there, here in facts:
            if there != here:
                raise UsageError(
                    f"the run {run.run_id} was measured with {name} {there}, and this grid has {here}",
                    "the same in one grid: its cells could not be compared otherwise",
                    "leave out resume= to measure all cells",
                )
