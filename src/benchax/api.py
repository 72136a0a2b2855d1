"""The functions that need both halves: measure a case, store its row.

`bench` is what users call; `run` is the same for many cases, for the command line and the plugin. A row that cannot be
stored is still returned: the measurement is worth more than its copy on disk.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from benchax import codec
from benchax.case import Case, make_case
from benchax.errors import BenchaxError, StoreError
from benchax.keywords import guard_keywords, takes
from benchax.measuring import timers
from benchax.model import Measurement, Options
from benchax.options import NAMES, Given, resolve, with_options
from benchax.progress import Listener, Progress, follow_stages, quiet, show_progress
from benchax.store.database import open_store
from benchax.units import plural
from benchax.workers.executors import executor_for

if TYPE_CHECKING:
    from benchax.clusters.agents import Agents


@guard_keywords(is_set_in_project=True, yields=("mode", "work", "mesh", "options"))
def bench(
    fn: Callable[..., Any],
    *args: Any,
    name: str | None = None,
    tag: str = "",
    jit: bool = True,
    mode: str | None = None,
    work: Mapping[str, float] | Callable[..., Mapping[str, float]] | None = None,
    mesh: Any = None,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    options: Options | Mapping[str, Any] | None = None,
    timer: str | None = None,
    max_time_s: float | str | None = None,
    min_time_s: float | str | None = None,
    max_samples: int | None = None,
    relative_width: float | str | None = None,
    verify: str | bool | None = None,
    memory: bool | None = None,
    cold_process: bool | None = None,
    seed: int | None = None,
    store: str | os.PathLike[str] | bool | None = None,
    isolate: bool | None = None,
    timeout_s: float | str | None = None,
    memory_limit_bytes: int | str | None = None,
    stages: str | None = None,
    processes: int | str | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Measurement:
    """Measures `fn(*args, **kwargs)`: every stage, steady state by several timers, and memory. Checks that the result
    is right.

    Args:
        fn: a plain function (measured as `jax.jit(fn)`), a jitted one, a `Compiled`, or a wrapper that holds a jit.
        args, kwargs: its inputs: arrays, NumPy arrays, pytrees, scalars, `jax.ShapeDtypeStruct`s, or specs. Specs such
            as "f32[1024,1024]" or "key" become seeded random data.
        name: the name of the stored row; default: the function's own.
        tag: distinguishes rows of one name.
        jit: False measures the call as it is.
        mode: of a loss: "forward" (as it is), "grad", or "forward_and_grad", with respect to its first argument of
            floats, as `jax.grad` and `jax.value_and_grad`.
        work: the work of one call, such as {"samples": 32, "tokens": 4096}, or a function of the inputs that returns
            it. The row then has samples and tokens per second. For "bytes" it also has the share of this machine's
            highest rate, if `benchax inspect --time` has measured that.
        mesh: the devices of specs that are sharded, such as "f32[1024@data,512]": "data=4,model=2", the same as a
            dict, or a `jax.sharding.Mesh`.
        static, donate: arguments of a plain function by position or name, as for `jax.jit`. The names that `jax.jit`
            uses (`static_argnums`, ...) work, too.
        options: the options below by name, or all of them, such as those of a row (`m.options`). A keyword of the call
            wins.
        timer: "auto", or names separated by commas: in_graph, wall, pipelined, loop, device. The first is the
            headline.
        max_time_s, min_time_s, max_samples, relative_width: when sampling of one timer stops.
        verify: compare the result with the "eager" or a "float64" one, or "off".
        memory: observe peak memory in an extra pass.
        cold_process: measure in a new process, whose stages are truly cold.
        seed: of the data made from specs.
        store: folder of the database, or "off".
        isolate: measure in a worker process: a crash costs one row, and a call that never returns can be killed.
        timeout_s: the limit for each stage (trace, compile, first run, ...). Sampling gets the time of its own options
            in addition. Implies `isolate`.
        memory_limit_bytes: the memory limit of the case, in bytes or as a text such as "4GiB". Implies `isolate`.
        stages: how far to go: "build", "first_run", "samples", or "all", with transfers and dispatch.
        processes: how many processes the readings come from; "auto" adds processes, up to 5, while the interval is too
            wide. The interval then holds for a later run. The default is this process alone. Its interval holds for a
            later run if the store has earlier runs of the same program, else for this process.
        progress: a function of `ProgressEvent`s, True (shown on stderr), False (silent), or None: shown if stderr is a
            terminal and it takes longer than two seconds.

    Returns:
        Measurement: one row. A function that fails gives a row with `failure`, not an exception.

    Raises:
        UsageError: an argument that cannot work; nothing has been measured then.

    If an argument of `fn` has the same name as one of these, pass it with `functools.partial`. Arguments named `mode`,
    `work` or `mesh` can be passed directly (`bench(jnp.pad, x, 1, mode="edge")`).

    Example:
        >>> m = benchax.bench(jnp.sort, "f32[1000]", max_time_s=0.05, store="off")
        >>> m.signature, m.summary("wall").median_s > 0
        ('f32[1000]', True)
    """
    named = {option: value for option, value in locals().items() if option in NAMES and value is not None}
    ours = {"mode": mode, "work": work, "mesh": mesh, "options": options}
    for option in [option for option, value in ours.items() if value is not None and takes(fn, option)]:
        kwargs[option] = ours.pop(option)
    given = with_options(ours.pop("options", None), named)
    case = make_case(fn, args, kwargs, name=name, tag=tag, static=static, donate=donate, jit=jit, **ours)
    outcome = RunOutcome()
    with show_progress(progress) as report:
        (row,) = run([case], call=given, outcome=outcome, report=report)
    for problem in outcome.unstored:
        # 3 frames up is the caller of `bench`, outside its guard.
        warnings.warn(f"the row was measured but not stored: {problem.error}", stacklevel=3)
    return row


@dataclass(frozen=True)
class Unstored:
    """A row that could not be stored, and why."""

    row: Measurement
    error: BenchaxError


@dataclass
class RunOutcome:
    """Results of `run` that are not in its rows."""

    unstored: list[Unstored] = field(default_factory=list)
    row_ids: dict[int, int] = field(default_factory=dict)
    """Position of a row in the run → its id in the store."""


def run(
    cases: Iterable[Case],
    options: Sequence[Options] | None = None,
    *,
    call: Given | None = None,
    command_line: Given | None = None,
    defaults: Mapping[str, Any] | None = None,
    report: Listener = quiet,
    outcome: RunOutcome | None = None,
    run_id: str | None = None,
    keep: Callable[[Measurement, Options], None] | None = None,
    agents: Agents | None = None,
) -> Iterator[Measurement]:
    """Measures cases one by one. Each row is stored before it is yielded and before the next case begins.

    Args:
        options: of each case, as `resolve_each` gives them; None: it is asked.
        call, command_line: the options from there.
        defaults: options by name, which everything else overrides.
        report: receives the progress.
        outcome: receives the rows that could not be stored, and the ids of stored rows.
        run_id: the id of the invocation; default: a new one.
        keep: receives each row instead of the store, for `store_together`.
        agents: the agents of a cluster that measure the cases; rows then come in the order of their ends. Default: this
            machine.

    A rank that a launcher started next to another one only takes part in the measurement: its rows are empty, and it
    stores none.

    Raises:
        UsageError: an option that is not permitted; before anything is measured.
    """
    listed = list(cases)
    outcome = outcome if outcome is not None else RunOutcome()
    if options is None:
        options = resolve_each(listed, call=call, command_line=command_line, defaults=defaults)
    for each in options:
        timers.parse(each.timer)
    run_id = run_id or uuid.uuid4().hex
    if agents is None and _is_following(options):
        options, report = [replace(each, store="off") for each in options], quiet
    measure = _measure_here if agents is None else partial(_measure_on, agents)
    for i, row in measure(listed, options, run_id, report):
        each = options[i]
        if keep is not None:
            keep(row, each)
        else:
            _store(row, each, i, outcome)
        yield row


def _is_following(options: Sequence[Options]) -> bool:
    if not any(each.nprocs for each in options):
        return False
    from benchax.workers.ranks import is_following  # noqa: PLC0415  # with all that starts processes

    return is_following(options)


def resolve_each(
    cases: Sequence[Case],
    *,
    call: Given | None = None,
    command_line: Given | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> list[Options]:
    """The options of each case. Raises `UsageError` as `run` does."""
    return [resolve(call, case.options, command_line, project=case.folder, defaults=defaults) for case in cases]


def _measure_here(
    cases: Sequence[Case], options: Sequence[Options], run_id: str, report: Listener
) -> Iterator[tuple[int, Measurement]]:
    for i, (case, each) in enumerate(zip(cases, options, strict=True)):
        progress = follow_stages(report, case.id.label, i, len(cases))
        if each.store not in (None, "off"):
            store = opened(each.store)
            case = replace(
                case, find_program=store.find_program, find_earlier_runs=partial(store.find_earlier_runs, case.id)
            )
        yield i, executor_for(each).run(case, each, run_id=run_id, progress=progress)


def _measure_on(
    agents: Agents, cases: Sequence[Case], options: Sequence[Options], run_id: str, report: Listener
) -> Iterator[tuple[int, Measurement]]:
    from benchax.clusters.cases import measure_cases  # noqa: PLC0415  # with all that starts processes

    return measure_cases(agents, cases, options, run_id, report)


def store_together(rows: Sequence[tuple[Measurement, Options]]) -> RunOutcome:
    """Stores rows that belong together in a third of the time; positions in the outcome are those in `rows`."""
    outcome = RunOutcome()
    with ExitStack() as stack:
        for where in dict.fromkeys(options.store for _, options in rows if options.store not in (None, "off")):
            stack.enter_context(opened(where).held_open())
        for i, (row, options) in enumerate(rows):
            _store(row, options, i, outcome)
    return outcome


# A store holds nothing open, and making one takes longer than writing a row.
opened = lru_cache(maxsize=4)(open_store)


def _store(row: Measurement, options: Options, position: int, outcome: RunOutcome) -> None:
    if options.store in (None, "off"):
        return
    try:
        outcome.row_ids[position] = opened(options.store).append(row)
    except StoreError as error:
        outcome.unstored.append(Unstored(row, error))


def rescue(unstored: Sequence[Unstored]) -> list[str]:
    """Writes rows that the store refused to a separate file. Returns what to tell the user; nothing without such rows.

    The file is in the folder of temporary files, since the store's own place has just refused these rows.
    """
    if not unstored:
        return []
    told, rows = [f"error: {unstored[0].error}"], plural(len(unstored), "row")
    try:
        with tempfile.NamedTemporaryFile(
            "w", suffix=".jsonl", prefix="benchax-", delete=False, encoding="utf-8"
        ) as file:
            file.writelines(codec.encode(each.row) + "\n" for each in unstored)
    except OSError as error:
        return [*told, f"error: {rows} not stored anywhere: {error}"]
    them = "them" if len(unstored) > 1 else "it"
    return [*told, f"{rows} kept in {file.name}; benchax.load({file.name!r}) reads {them}"]
