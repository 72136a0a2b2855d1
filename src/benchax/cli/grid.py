"""`benchax grid FILE`: functions × data of a Python file, every cell in a worker that is killed when it takes too long.

The file sets `functions` and `data`, and whatever else `benchax.grid` takes (`make`, `trials`, `timeout_s`, `axis`, …)
under the same names; flags win over it. A cell that ran into a limit is a result. So the exit code is 2 only where a
cell crashed, raised or ran out of memory, or rows could not be stored. It is 1 where a result is wrong: refused by
`check`, of a wrong shape, or another one than that of the function that `compare` names. Functions of a grid may differ
by design: without a name in `compare`, a difference is shown and nothing more.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import note, print_json, printing_to_stderr, show
from benchax.cli.options import COMMAND_LINE, Html, MemoryLimit, On, Seed, StoreOrOff
from benchax.cli.output_files import check_drawable, check_writable, write_figure, write_page
from benchax.errors import UsageError
from benchax.units import read_duration

if TYPE_CHECKING:
    from benchax.grids.result import GridResult
    from benchax.grids.running import GridRun

LIMITED = ("ok", "timeout", "not_run")
"""Statuses of a grid that went as it was asked to."""
WRONG = ("wrong_shape",)
"""Statuses of cells that ran, and gave what cannot be the answer."""


def grid(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with the variables functions and data.")],
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="For each call of a function: 2min, 500ms (30).")
    ] = None,
    compile_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="For compiling a cell (as --timeout, a minute at least).")
    ] = None,
    total_timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="For the whole grid, shared between its cells (no limit).")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each cell, on fresh inputs (1).")] = None,
    seed: Seed = None,
    timer: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Some of wall, in_graph, …; the first is the headline (wall)."),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="All must give the result of this one: exit code 1 if not."),
    ] = None,
    memory: Annotated[
        bool | None, typer.Option("--memory/--no-memory", help="Observe by how much a call raises memory (no).")
    ] = None,
    memory_limit: MemoryLimit = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Measure only what a run lacks: an id, last, last~1, a baseline.")
    ] = None,
    store: StoreOrOff = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per cell on stdout.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the times there.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a heat map there: .png, .svg, .pdf.")] = None,
    html: Html = None,
    fill: Annotated[
        float | None, typer.Option(help="In the CSV, the time limit in place of missing times; for outputs this.")
    ] = None,
    on: On = None,
) -> None:
    """Every function on every data point: times and statuses, under limits that hold.

    Exit codes: 0 fine (time limits are results), 1 a wrong result, 2 an error (crashed, raised, out of memory).
    """
    from benchax.options import read_seed

    flags = {
        "timeout_s": read_duration("timeout_s", timeout, COMMAND_LINE),
        "compile_timeout_s": read_duration("compile_timeout_s", compile_timeout, COMMAND_LINE),
        "total_timeout_s": read_duration("total_timeout_s", total_timeout, COMMAND_LINE),
        "seed": None if seed is None else read_seed(seed, COMMAND_LINE),
        "trials": trials, "timer": timer, "memory_limit_bytes": memory_limit, "store": store, "fill": fill,
        "compare": compare, "memory": memory, "resume": True if resume == "last" else resume,
    }  # fmt: skip
    check_writable(csv, html)
    check_drawable(plot)
    functions, data, given = read(file)
    given |= {name: value for name, value in flags.items() if value is not None}
    code, result = measure(functions, data, given, as_json=as_json, on=on, folder=file.resolve().parent)
    _write(result, csv, plot)
    write_page(html, result)
    raise typer.Exit(code)


def read(file: Path) -> tuple[Any, Any, dict[str, Any]]:
    """(functions, data, settings) of a file.

    Raises:
        UsageError: there is no such file, it cannot be imported, or it lacks one of the two.
    """
    from benchax.discovery import files, import_file
    from benchax.grids.grid import defaults

    if file.is_dir():
        raise UsageError(f"{str(file)!r} is a folder", "a Python file with the variables functions and data")
    (path,) = files(file)
    found = vars(printing_to_stderr(lambda: import_file(path)))
    for name in ("functions", "data"):
        if name not in found:
            raise UsageError(
                f"{str(file)!r} has no variable {name!r}",
                "functions, a list or a dict of functions, and data, a list or a dict of data points",
            )
    known = defaults()
    settings = {name: found[name] for name in known if name in found and _is_meant(name, found[name])}
    for name in found:
        # A slip in a setting would go unnoticed: a file may hold any other variables.
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        is_value = not callable(found[name]) and not isinstance(found[name], ModuleType)  # import time
        if near and name not in known and near[0] not in found and is_value:
            note(f"note: {file} sets {name!r}, which is no setting of a grid; {near[0]!r} is")
    return found["functions"], found["data"], known | {"name": path.stem} | settings


def _is_meant(name: str, value: Any) -> bool:
    """Only `make` and `check` are functions: a function of the user's that is called `store` is no setting."""
    return not callable(value) or name in ("make", "check")


def measure(
    functions: Any,
    data: Any,
    given: Mapping[str, Any],
    *,
    as_json: bool = False,
    on: str | None = None,
    folder: Path | None = None,
) -> tuple[int, GridResult]:
    """Measures, shows, and returns the exit code. Ctrl-C shows and keeps what is finished."""
    from benchax.api import RunOutcome, Unstored
    from benchax.cli.run import rescue
    from benchax.clusters import open_agents
    from benchax.grids import rendering
    from benchax.grids.grid import result_of, start_run, validate_spec
    from benchax.progress import show_progress

    wish = validate_spec(functions, data, given)
    running: list[GridRun] = []
    with (
        show_progress(True, has_bar=not as_json, results=lambda: _lines_of(running)) as report,
        open_agents(on, folder) as agents,
    ):
        run = start_run(wish, agents, report)
        running.append(run)
        interrupted = _interrupt(run)
    result = result_of(run, wish)
    try:
        if as_json:
            print_json(list(result.measurements))
        else:
            show(rendering.document(result))
    finally:  # also when stdout is closed or full
        rescue(RunOutcome([Unstored(row, error) for row, error in run.unstored]))
    if interrupted:
        finished = sum(cell.status not in ("not_run", "interrupted") for cell in result.cells)
        # A run of which no cell has ended is in no store.
        kept = ", and kept" if finished else ""
        stored = f"; go on with: --resume {run.run_id[:12]}" if finished and run.store is not None else ""
        note(f"interrupted: {finished} of {len(result.cells)} cells finished{kept}{stored}")
        return 130, result
    if run.unstored or any(cell.status not in (*LIMITED, *WRONG) for cell in result.cells):
        return 2, result
    return int(is_wrong(result, names_reference=isinstance(given["compare"], str))), result


def _lines_of(running: Sequence[GridRun]) -> list[str]:
    """The table with what has ended so far."""
    from benchax.grids.rendering import table_so_far
    from benchax.reporting import terminal
    from benchax.reporting.document import Document

    if not running or not running[0].cells:
        return []
    plan = running[0].plan
    return terminal.to_text(
        Document((table_so_far(running[0].cells, list(plan.functions), plan.labels, plan.axis),))
    ).splitlines()


def is_wrong(result: GridResult, *, names_reference: bool) -> bool:
    """Is a result refused or of a wrong shape; or, where a function was named that all must agree with, another one?"""
    from benchax.model import Absent

    if any(cell.status in WRONG for cell in result.cells):
        return True
    compared = [cell.agreement for cell in result.cells if not isinstance(cell.agreement, Absent)]
    return names_reference and any(not trial.agrees for cell in compared for trial in cell)


def _interrupt(run: GridRun) -> bool:
    try:
        run.go()
    except KeyboardInterrupt:
        return True
    return False


def _write(result: GridResult, csv: Path | None, plot: Path | None) -> None:
    if csv is not None:
        result.to_csv(csv)
        note(f"times written to {csv}")
    if plot is not None:
        write_figure(plot, result.plot())
        note(f"heat map drawn to {plot}")
