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
from statistics import fmean, median
from time import monotonic
from typing import Any

from benchax.case import param_value
from benchax.clusters import open_agents
from benchax.clusters.agents import Agents, Dispatcher, Node, WorkBatch
from benchax.errors import BenchaxError, StoreError, UsageError, one_of
from benchax.grids.cell import CellAnswer, CellRequest, join_trials, measure_cell
from benchax.grids.outputs import agreement, checked_clip, put_together, size_bytes
from benchax.grids.plan import Key, Label, named_functions, points, trial_seed, whole
from benchax.grids.rendering import shares
from benchax.grids.result import Cell, GridResult
from benchax.grouping import group_by
from benchax.keywords import guard_keywords
from benchax.measuring import timers
from benchax.measuring.record import RemoteRow
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
    """`given` has all of `defaults()`. Raises `UsageError` for whatever is not permitted; nothing has run then."""
    options, make, check, fill = _resolve(given), given["make"], given["check"], given["fill"]
    if make is not None and not callable(make):
        raise UsageError(f"make={make!r} is a {type(make).__name__}", "a function of a key and a data point")
    if check is not None and not callable(check):
        raise UsageError(f"check={check!r} of a grid", "a function of an output and its inputs, or None")
    if fill is not None and (isinstance(fill, bool) or not isinstance(fill, int | float)):
        raise UsageError(f"fill={fill!r} of a grid", "a number that replaces missing outputs, or None")
    for what in ("name", "axis"):
        if not isinstance(given[what], str) or not given[what]:
            raise UsageError(f"{what}={given[what]!r} of a grid", "a text that is not empty")
    if given["axis"] in ("grid", "function", "i"):
        raise UsageError(f"axis={given['axis']!r} of a grid", "another name: this one is taken by benchax")
    named, compile_s = named_functions(functions), read_duration("compile_timeout_s", given["compile_timeout_s"])
    if compile_s is None and options.timeout_s is not None:
        compile_s = max(COMPILE_LEAST_S, options.timeout_s)
    return GridSpec(
        name=given["name"],
        axis=given["axis"],
        functions=named,
        points=points(data, make),
        make=make,
        trials=whole("trials", given["trials"], least=1),
        options=options,
        compile_s=compile_s,
        total_s=read_duration("total_timeout_s", given["total_timeout_s"]),
        check=check,
        reference=_reference(named, given["compare"]),
        output_limit_bytes=parse_size(given["output_limit_bytes"]),
        fill=fill,
        clip=checked_clip(given["clip"]),
        nan_to_num=bool(given["nan_to_num"]),
        resume=given["resume"],
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


def _reference(functions: Mapping[str, Any], compare: Any) -> str | None:
    """The function that outputs are compared with; None if they are not."""
    if compare is False or (compare is True and len(functions) < 2):
        return None
    if compare is True:
        return next(iter(functions))
    if not isinstance(compare, str) or compare not in functions:
        raise UsageError(f"compare={compare!r} of a grid", f"True, False, or {one_of(functions, str(compare))}")
    return compare


def start_run(spec: GridSpec, agents: Agents, report: Listener, clock: Callable[[], float] = monotonic) -> GridRun:
    """A run with its workers ready, and with the cells of the run that it goes on with."""
    where, resume = spec.options.store, spec.resume
    store = None if where == "off" else open_store(where)
    if resume and store is None:
        raise UsageError(f"resume={resume!r} without a store", "a store, whose rows show what is finished")
    run_id, rows = earlier(store, spec, resume) if resume else ("", {})
    # Start the workers and read their environment before the first cell, so that no cell pays for it.
    needed = (dict(spec.functions), spec.check, spec.make)
    begun = clock()
    nodes = agents.start(needed, CallLimits(lambda stage: spec.compile_s))
    run = GridRun(spec, run_id or uuid.uuid4().hex, agents, nodes, begun, store, report, clock)
    refuse_others(run, rows)
    run.cells = {key: _without_outputs(key, row, NOT_STORED) for key, row in rows.items()}
    return run


def result_of(run: GridRun) -> GridResult:
    """Returns the result of a run."""
    spec = run.spec
    return GridResult(
        name=spec.name,
        axis=spec.axis,
        functions=tuple(spec.functions),
        data=tuple(spec.points),
        trials=spec.trials,
        by_key=run.cells,
        timeout_s=spec.options.timeout_s,
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
class GridSpec:
    """A grid as it was asked for, checked. A limit of None is no limit."""

    name: str
    axis: str
    functions: Mapping[str, Callable[..., Any]]
    """By name, in the order given."""
    points: Mapping[Label, Any]
    """The data points by their labels, in the order given."""
    make: Callable[[Any, Any], Any] | None
    trials: int
    options: Options
    """Each cell has these. `timeout_s` limits tracing, and every single call."""
    compile_s: float | None
    """Limits lowering, compiling, making inputs (which compiles too), sending and fetching."""
    total_s: float | None
    """Limits the whole grid."""
    check: Callable[..., Any] | None
    reference: str | None
    """The function whose outputs the others are compared with; None compares nothing."""
    output_limit_bytes: int
    fill: float | None
    clip: tuple[float, float] | None
    nan_to_num: bool
    resume: str | bool | None

    @property
    def cells(self) -> list[Key]:
        """All cells in the order of running: the functions of one data point are next to each other, to be compared."""
        return [(function, label) for label in self.points for function in self.functions]

    @property
    def count(self) -> int:
        """The number of cells."""
        return len(self.functions) * len(self.points)

    def case_id(self, key: Key) -> CaseId:
        """The stored identity of a cell."""
        function, label = key
        return CaseId(function, ((self.axis, param_value(label)), ("grid", self.name)))


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
    remote: RemoteRow = field(default_factory=RemoteRow)


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
    kept_bytes: int = 0
    examined: set[str] = field(default_factory=set[str])
    """Functions with at least one measured cell."""
    attempts: dict[Key, CellAttempt] = field(default_factory=dict)
    """The attempts of the cells that are being measured."""
    dispatcher: Dispatcher[Key] | None = None

    @property
    def elapsed_s(self) -> float:
        return self.clock() - self.begun

    @property
    def node_count(self) -> int:
        return max(1, self.dispatcher.node_count if self.dispatcher else len(self.nodes))

    def go(self) -> None:
        """Measures every cell that is missing. Raises KeyboardInterrupt after Ctrl-C, with all cells accounted for."""
        self.dispatcher = Dispatcher(self.agents, self.nodes, self._batches(), self._begin, self._listen)
        try:
            with self.store.held_open() if self.store is not None else nullcontext():
                for group in self.dispatcher.groups():
                    self._store([self._finish(ended.item, ended.outcome) for ended in group])
        except KeyboardInterrupt:
            self._account("interrupted", "Ctrl-C came while it was measured", self.attempts)
            self._account("not_run", "the run was interrupted before it", self.spec.cells)
            raise
        if self.dispatcher.lost:
            why = "; ".join(list(self.dispatcher.lost.values())[-3:])
            self._account("not_run", f"no node is left: {why}", self.spec.cells)

    def _batches(self) -> Iterator[WorkBatch[Key]]:
        """One node measures all cells of a data point, the reference first. So each of the others can be compared as
        soon as it ends."""
        functions = sorted(self.spec.functions, key=lambda function: function != self.spec.reference)
        for label in self.spec.points:
            keys = [(function, label) for function in functions]
            hosts = (self.cells[key].measurement.environment.host for key in keys if key in self.cells)
            yield WorkBatch(deque(key for key in keys if key not in self.cells), next(hosts, ""))

    def _begin(self, key: Key, node: Node) -> CellJob | None:
        """The cell has its turn; None if there is no time left for it."""
        self.attempts.pop(key, None)  # a cell whose node was lost runs again
        # This one, and those that have had no turn.
        left = self.spec.count - len(self.cells) - len(self.attempts)
        share_s, total_s = None, self.spec.total_s
        if total_s is not None:
            remaining_s = total_s - self.elapsed_s
            if remaining_s < LEAST_TURN_S:
                why = f"the {seconds(total_s)} for the whole grid were spent before it could run"
                self._account("not_run", why, [key])
                return None
            share_s = min(remaining_s, allowance(remaining_s * self.node_count, left, self.spent_s))
        self.attempts[key] = CellAttempt(node, self.clock(), share_s, left)
        self._report(key, "start", left)
        call_s, compile_s = self.spec.options.timeout_s, self.spec.compile_s
        limits = CallLimits(
            lambda stage: call_s if stage in CALLS else compile_s, share_s, self.spec.options.memory_limit_bytes
        )
        return CellJob(self._request(key), limits)

    def _listen(self, key: Key, message: dict[str, Any]) -> None:
        attempt = self.attempts[key]
        attempt.remote.listen(message)
        self._report(key, message["stage"], attempt.left)

    def _finish(self, key: Key, answer: CellAnswer | Failure) -> Measurement:
        """The cell is judged and compared; returns its row."""
        attempt = self.attempts.pop(key)
        spent_s, share_s = self.clock() - attempt.begun, attempt.share_s
        answer = CellAnswer(answer, (), "") if isinstance(answer, Failure) else answer
        failure = answer.failure
        if failure is not None and failure.kind == "timeout" and share_s is not None and spent_s >= share_s:
            failure = of_the_total(failure, self.spec.total_s or share_s, share_s)
        row = self._row(key, failure, attempt)
        self.cells[key] = cell = replace(self._cell(key, row, answer), spent_s=spent_s)
        self.spent_s.append(spent_s)
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

    def _request(self, key: Key) -> CellRequest:
        spec, (function, label) = self.spec, key
        finished = {name: self.cells[name, label] for name in spec.functions if (name, label) in self.cells}
        shapes = ((_shape_of(cell), name) for name, cell in finished.items() if cell.status == "ok")
        shape, giver = next(((shape, name) for shape, name in shapes if shape), ("", ""))
        examines = function not in self.examined
        self.examined.add(function)
        return CellRequest(
            function,
            spec.functions[function],
            spec.points[label],
            spec.make,
            tuple(trial_seed(spec.options.seed, label, i) for i in range(spec.trials)),
            spec.options,
            spec.check,
            shape,
            giver,
            spec.output_limit_bytes - self.kept_bytes,
            examines,
        )

    def _row(self, key: Key, failure: Failure | None, attempt: CellAttempt) -> Measurement:
        row = attempt.remote.row(
            self.spec.case_id(key), attempt.node.environment, self.spec.options, self.run_id, failure
        )
        shape = attempt.remote.known.get("shape")
        told = (Remark(SHAPE_REMARK, "info", f"{SHAPE_WORDS}{shape}"),) if shape else ()
        return replace(row, samples=join_trials(row.samples), remarks=(*told, *row.remarks))

    def _cell(self, key: Key, row: Measurement, answer: CellAnswer) -> Cell:
        # Workers keep to the time that was left when they began. On several nodes, others have ended since.
        limit, taken, not_kept = self.spec.output_limit_bytes, size_bytes(answer.outputs), answer.not_kept
        if row.failure is not None:
            not_kept = f"the cell has the status {row.failure.kind.replace('_', ' ')}"
        elif not not_kept and self.kept_bytes + taken > limit:
            not_kept = f"they exceed the {size(limit)} of outputs that this grid keeps"
        if not_kept:
            return _without_outputs(key, row, not_kept)
        self.kept_bytes += taken
        outputs = tuple(map(put_together, answer.outputs))
        compared = self._compare(key, outputs)
        trials = () if isinstance(compared, Absent) else compared
        if differs := next((each for each in trials if not each.agrees), None):
            text = f"not the result of {self.spec.reference}: {differs.why}"
            row = replace(row, remarks=(*row.remarks, Remark("outputs-differ", "info", text)))
        return Cell(*key, row, outputs, compared)

    def _compare(self, key: Key, outputs: tuple[Any, ...]) -> tuple[Numerics, ...] | Absent:
        reference, (function, label) = self.spec.reference, key
        if reference is None:
            return Absent("agreement", "comparing outputs is switched off (compare=False)")
        if function == reference:
            return Absent("agreement", "it is the function that others are compared with")
        other = self.cells.get((reference, label))
        if other is None or isinstance(other.outputs, Absent):
            why = other.outputs.why if other is not None and isinstance(other.outputs, Absent) else "it was not run"
            return Absent("agreement", f"there are no outputs of {reference} to compare with: {why}")
        return tuple(agreement(a, b) for a, b in zip(outputs, other.outputs, strict=True))

    def _account(self, kind: Any, why: str, left: Iterable[Key]) -> None:
        """Cells without a turn: in the result, not in the store, so that `resume` finds them missing."""
        for key in left:
            if key not in self.cells:
                # Uses the environment of the first node, also for cells that did not start.
                row = self._row(key, Failure(kind, "start", why), CellAttempt(self.nodes[0], 0.0, None, 0))
                self.cells[key] = _without_outputs(key, row, why)

    def _report(self, key: Key, stage: str, left: int) -> None:
        total, (function, label) = self.spec.count, key
        left_s = fmean(self.spent_s) * left / self.node_count if self.spent_s else None
        if self.spec.total_s is not None and left_s is not None:
            left_s = max(0.0, min(left_s, self.spec.total_s - self.elapsed_s))
        cell = f"{function}[{self.spec.axis}={label}]"
        self.report(ProgressEvent(cell, SHOWN_AS.get(stage, stage), total - left, total, left_s))


def _shape_of(cell: Cell) -> str:
    """The shape of its result; empty if its row does not say it."""
    remarks = cell.measurement.remarks
    return next((r.message.removeprefix(SHAPE_WORDS) for r in remarks if r.code == SHAPE_REMARK), "")


NOT_STORED = "the cell was measured in an earlier run, and outputs are not stored"


def _without_outputs(key: Key, row: Measurement, why: str) -> Cell:
    return Cell(*key, row, Absent("outputs", why), Absent("agreement", why))


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


def earlier(store: Any, spec: GridSpec, resume: str | bool) -> tuple[str, dict[Key, Measurement]]:
    """The run to go on with, and its finished cells; ("", {}) if `resume` is True and the store holds no unfinished run
    of this grid.

    Args:
        resume: the id of a run, its first digits, or a name for it. True means the newest unfinished run of a grid of
            this name.

    Raises:
        UsageError: no such run.
    """
    keys = {spec.case_id(key): key for key in spec.cells}
    rows: list[Row] = []
    with suppress(StoreError):  # nothing was ever stored there
        rows = [row for function in spec.functions for row in store.rows(case=function) if row.case in keys]
    by_run = group_by(rows, lambda row: row.run_id)
    runs = sorted(by_run, key=lambda run: max(row.id for row in by_run[run]))
    if resume is True:
        run = next((run for run in reversed(runs) if len({row.case for row in by_run[run]}) < len(keys)), None)
        if run is None:
            return "", {}
    else:
        run = find_run(store, str(resume)) if runs else None  # without runs there may be no database either
        if run not in runs:
            listed = ", ".join(runs[-5:]) or "none"
            raise UsageError(
                f"resume={resume!r}: there is no such run of the grid {spec.name!r} in {store.where}",
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
            ("seed", row.options.seed, run.spec.options.seed),
            ("timer", row.options.timer, run.spec.options.timer),
        ]
        if row.headline is not None and row.failure is None:
            facts.append(("trials", len(row.headline.trials or ()), run.spec.trials))
        if len(run.nodes) == 1:
            facts.append(("environment", row.environment.fingerprint, run.nodes[0].environment.fingerprint))
        for name, there, here in facts:
            if there != here:
                raise UsageError(
                    f"the run {run.run_id} was measured with {name} {there}, and this grid has {here}",
                    "the same in one grid: its cells could not be compared otherwise",
                    "leave out resume= to measure all cells",
                )
