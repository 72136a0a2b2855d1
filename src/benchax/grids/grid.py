"""`grid`: functions × data, each cell with its output, its time and its status, under limits that always hold.

Every cell runs in a worker process that is killed when it takes too long. So a grid always ends, whatever its functions
do. Each finished cell is one row of the store, durable before the next one begins.
"""

from __future__ import annotations

import inspect
import os
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any

from benchax.clusters import open_agents
from benchax.clusters.agents import Agents
from benchax.errors import StoreError, UsageError, one_of
from benchax.grids.outputs import checked_clip
from benchax.grids.plan import Key, Plan, plan
from benchax.grids.rendering import shares
from benchax.grids.result import GridResult
from benchax.grids.running import GridRun, GridSpec, limits
from benchax.keywords import guard_keywords
from benchax.measuring import timers
from benchax.model import CaseId, Measurement
from benchax.options import read_seed, resolve
from benchax.progress import Listener, Progress, show_progress
from benchax.store.baselines import find_run
from benchax.store.database import open_store
from benchax.units import parse_size

OUTPUT_LIMIT = "1GiB"


@guard_keywords()
def grid(
    functions: Iterable[Callable[..., Any]] | Mapping[str, Callable[..., Any]],
    data: Iterable[Any] | Mapping[Any, Any],
    *,
    make: Callable[[Any, Any], Any] | None = None,
    timeout_s: float | str | None = 30.0,
    compile_timeout_s: float | str | None = None,
    total_timeout_s: float | str | None = None,
    trials: int = 1,
    seed: int | None = None,
    timer: str = "wall",
    check: Callable[..., Any] | None = None,
    compare: bool | str = True,
    fill: float | None = None,
    clip: tuple[float, float] | None = None,
    nan_to_num: bool = False,
    memory: bool = False,
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
        timeout_s: for every single call of a function, and for tracing it. None: no limit.
        compile_timeout_s: for compiling, making inputs and sending; default: as long as a call, but at least a minute.
        total_timeout_s: for the whole grid. A cell can use half of the time that the others are not expected to need,
            and at least its equal share. Cells that do not start are "not_run".
        trials: each on its own fresh inputs, if inputs are made or specs. Its figure is the median of calls
            repeated for about a millisecond (50 at most, 1 at least) after a first one; a first call of 10 ms and more
            is the reading itself.
        seed: the same seed gives the same inputs; they depend on the label and the trial, not on the functions.
            Default: the seed of the options, which is 0.
        timer: names separated by commas, or "auto", as for `bench`; table, `timings` and ranking use one of them
            (`GridResult.timer`). "wall" is the latency of a call with the wait for its outputs. All other timers are
            prepared again for each trial, which takes about 0.2 s.
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
        # 3: whoever called `grid`, past its guard
        warnings.warn(f"a cell was measured but not stored: {error}", stacklevel=3)
    return result_of(run)


def defaults() -> dict[str, Any]:
    """The arguments of `grid` in addition to functions and data, with their defaults; without `progress` and `on`."""
    parameters = inspect.signature(grid).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in ("progress", "on")}


def validate_spec(functions: Any, data: Any, given: Mapping[str, Any]) -> GridSpec:
    """`given` has all of `defaults()`. Raises `UsageError` for whatever is not permitted."""
    planned = plan(
        functions, data, make=given["make"], trials=given["trials"], seed=read_seed(given["seed"]), name=given["name"],
        axis=given["axis"],
    )  # fmt: skip
    if given["check"] is not None and not callable(given["check"]):
        raise UsageError(f"check={given['check']!r} of a grid", "a function of an output and its inputs, or None")
    fill = given["fill"]
    if fill is not None and (isinstance(fill, bool) or not isinstance(fill, int | float)):
        raise UsageError(f"fill={fill!r} of a grid", "a number, to stand for outputs that are not there, or None")
    limited = limits(given["timeout_s"], given["compile_timeout_s"], given["total_timeout_s"])
    options = resolve(
        {
            "timer": given["timer"], "seed": planned.seed, "store": given["store"], "verify": "off",
            "memory": given["memory"], "stages": "samples", "isolate": True, "timeout_s": limited.call_s,
            "memory_limit_bytes": given["memory_limit_bytes"],
        }
    )  # fmt: skip
    timers.parse(options.timer)
    return GridSpec(
        planned,
        limited,
        options,
        given["check"],
        _reference(planned, given["compare"]),
        parse_size(given["output_limit_bytes"]),
        fill,
        checked_clip(given["clip"]),
        bool(given["nan_to_num"]),
        given["resume"],
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
        raise UsageError(f"resume={resume!r} without a store", "a store, whose rows tell what is finished")
    run_id, rows = earlier(store, spec.plan, resume) if resume else ("", {})
    run = GridRun(spec, run_id or uuid.uuid4().hex, agents, store, report, clock=clock)
    run.start()
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


# ---- the rows of a grid that was not finished, so that only the missing cells are measured ----------------------
#
# A row counts if its cell was measured or failed. A cell that had no turn is in no store. Rows measured in another way
# (trials, seed, timer) or in another environment are refused: they cannot be in one grid with the rest.


def earlier(store: Any, plan: Plan, resume: str | bool) -> tuple[str, dict[Key, Measurement]]:
    """The run to go on with, and its finished cells; ("", {}) if `resume` is True and the store holds no unfinished run
    of this grid.

    Args:
        resume: the id of a run, or True for the newest unfinished one of a grid of this name.

    Raises:
        UsageError: no such run.
    """
    keys = {plan.case_id(function, point.label): (function, point.label) for function, point in plan.cells}
    runs = _runs(store, plan, keys)
    if resume is True:
        unfinished = [run for run, cells in runs.items() if len(cells) < len(keys)]
        if not unfinished:
            return "", {}
        run = unfinished[-1]
    else:
        run = _find_named(str(resume), runs, store, plan)
    # The newest row of a cell wins: oldest first, so later ones replace it.
    return run, {keys[row.case]: row for row in store.query(run=run) if row.case in keys}


def _runs(store: Any, plan: Plan, keys: Mapping[CaseId, Key]) -> dict[str, set[Key]]:
    """The runs of this grid, oldest first by their last row, with the cells that each has rows of."""
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
        [named] if named is not None and named in runs else [known for known in runs if run and known.startswith(run)]
    )
    if len(matching) != 1:
        listed = ", ".join(list(runs)[-5:]) or "none"
        raise UsageError(
            f"resume={run!r}: there is no such run of the grid {plan.name!r} in {store.where}",
            f"True, or a run of that grid (its id, last~1, a name of `benchax baseline`); the newest are: {listed}",
        )
    return matching[0]


def refuse_others(run: GridRun, rows: Mapping[Key, Measurement]) -> None:
    """Raises `UsageError` if these earlier rows and the new ones cannot be in one grid.

    With several nodes, rows have several environments, but compared rows have the same one (`rank`). A node that is
    gone can have measured some.
    """
    for row in rows.values():
        samples = row.headline
        there: dict[str, Any] = {"seed": row.options.seed, "timer": row.options.timer}
        here: dict[str, Any] = {"seed": run.spec.plan.seed, "timer": run.spec.options.timer}
        if samples is not None and row.failure is None:
            there["trials"], here["trials"] = len(samples.trials or ()), run.spec.plan.trials
        if len(run.nodes) == 1:
            there["environment"], here["environment"] = row.environment.fingerprint, run.environment.fingerprint
        for name, value in there.items():
            if value != here[name]:
                raise UsageError(
                    f"the run {run.run_id} was measured with {name} {value}, and this grid has {here[name]}",
                    "the same in one grid: its cells could not be compared otherwise",
                    "leave out resume= to measure all cells",
                )
