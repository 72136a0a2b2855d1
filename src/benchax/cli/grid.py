"""`benchax grid FILE`: runs functions × data of a Python file. Each cell has a worker, killed if it takes too long.

The file sets `functions` and `data`. It can set the other arguments of `benchax.grid` (`make`, `trials`, `timeout_s`,
`axis`, …) under the same names; flags win over the file. A cell that reached a limit is a result. So the exit code is 2
only if a cell crashed, raised or ran out of memory, or if benchax could not store rows. It is 1 if a result is wrong:
`check` refuses it, its shape is wrong, or it differs from that of the function in `compare`. Functions of a
grid can differ by design. Without a name in `compare`, benchax shows a difference and does nothing more.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.cli.console import note, print_json, printing_to_stderr, show
from benchax.cli.options import Given, Html, On, takes_options
from benchax.cli.output_files import check_drawable, check_writable, write_figure, write_page
from benchax.discovery import files, import_file
from benchax.errors import UsageError
from benchax.model import Absent
from benchax.progress import show_progress
from benchax.reporting import terminal
from benchax.reporting.document import Document

if TYPE_CHECKING:
    from benchax.grids.grid import GridRun
    from benchax.grids.result import GridResult

LIMITED = ("ok", "timeout", "not_run")
"""A grid that ran as requested has only these statuses."""
WRONG = ("wrong_shape",)
"""Cells with these statuses ran, and gave an impossible result."""


@takes_options(
    "memory_limit_bytes",
    "seed",
    "store",
    timer="Use these timers: wall, in_graph, …; headline first (wall).",
    memory="Measure the memory that each call adds (no).",
    timeout_s="Limit each call of a function: 2min, 500ms (30).",
    compile_timeout_s="Limit compiling a cell (as --timeout, at least 1min).",
    total_timeout_s="Limit the whole grid; its cells share it (no limit).",
)
def grid(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with the variables functions and data.")],
    *,
    given: Given,
    trials: Annotated[int | None, typer.Option(help="Run this many trials of each cell, on fresh inputs (1).")] = None,
    compare: Annotated[
        str | None,
        typer.Option(metavar="FUNCTION", help="Exit with 1 if results differ from this function's."),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Measure only missing cells of a run: id, last, last~1, a baseline."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON document per cell to stdout.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the times to FILE.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw a heat map to FILE: .png, .svg, .pdf.")
    ] = None,
    html: Html = None,
    fill: Annotated[
        float | None,
        typer.Option(help="Use this for missing outputs, and in the CSV the time limit for missing times."),
    ] = None,
    on: On = None,
) -> None:
    """Run every function on every data point, under strict limits, and show times and statuses.

    Exit codes: 0 fine (time limits are results), 1 a wrong result, 2 an error (crashed, raised, out of memory).
    """
    resumed = True if resume == "last" else resume
    given |= {"trials": trials, "fill": fill, "compare": compare, "resume": resumed}
    check_writable(csv, html)
    check_drawable(plot)
    functions, data, settings = read(file)
    settings |= {name: value for name, value in given.items() if value is not None}
    code, result = measure(functions, data, settings, as_json=as_json, on=on, folder=file.resolve().parent)
    if csv is not None:
        result.to_csv(csv)
        note(f"times written to {csv}")
    if plot is not None:
        write_figure(plot, result.plot())
        note(f"heat map drawn to {plot}")
    write_page(html, result)
    raise typer.Exit(code)


def read(file: Path) -> tuple[Any, Any, dict[str, Any]]:
    """Returns (functions, data, settings) of a file.

    Raises:
        UsageError: there is no such file, its import fails, or it lacks `functions` or `data`.
    """
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
    """Returns whether a value is a setting. Only `make` and `check` can be functions: a user's `store()` is not one."""
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
    """Measures, shows, and returns the exit code. Ctrl-C shows and keeps the finished cells."""
    from benchax.api import Unstored, rescue
    from benchax.clusters import open_agents
    from benchax.grids import rendering
    from benchax.grids.grid import result_of, start_run, validate_spec

    wish = validate_spec(functions, data, given)
    running: list[GridRun] = []
    interrupted = False
    with (
        show_progress(True, has_bar=not as_json, results=lambda: _lines_of(running)) as report,
        open_agents(on, folder) as agents,
    ):
        run = start_run(wish, agents, report)
        running.append(run)
        try:
            run.go()
        except KeyboardInterrupt:
            interrupted = True
    result = result_of(run)
    try:
        if as_json:
            print_json(list(result.measurements))
        else:
            show(rendering.document(result))
    finally:  # also when stdout is closed or full
        for text in rescue([Unstored(row, error) for row, error in run.unstored]):
            note(text)
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
    """Returns the lines of a table with the cells that have ended so far."""
    from benchax.grids.rendering import table_so_far

    if not running or not running[0].cells:
        return []
    plan = running[0].spec.plan
    return terminal.to_text(
        Document((table_so_far(running[0].cells, list(plan.functions), plan.labels, plan.axis),))
    ).splitlines()


def is_wrong(result: GridResult, *, names_reference: bool) -> bool:
    """Is a result refused, or is its shape wrong? If the user named a reference function, does a result differ?"""

    if any(cell.status in WRONG for cell in result.cells):
        return True
    compared = [cell.agreement for cell in result.cells if not isinstance(cell.agreement, Absent)]
    return names_reference and any(not trial.agrees for cell in compared for trial in cell)
