"""`benchax grid FILE`: functions × data of a Python file, every cell in a worker that is killed when it takes too long.

The file sets `functions` and `data`, and whatever else `benchax.grid` takes (`make`, `trials`, `timeout_s`, `axis`, …)
under the same names; flags win over it. A cell that ran into a limit is a result. So the exit code is 2 only where a
cell crashed, raised or ran out of memory, or rows could not be stored. It is 1 where a result is wrong: refused by
`check`, of a wrong shape, or another one than that of the function that `compare` names. Functions of a grid may differ
by design: without a name in `compare`, a difference is shown and nothing more.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.grids.result import GridResult
    from benchax.grids.running import GridRun, GridStep

LIMITED = ("ok", "timeout", "not_run")
"""Statuses of a grid that went as it was asked to."""
WRONG = ("wrong_shape",)
"""Statuses of cells that ran, and gave what cannot be the answer."""


def grid(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A Python file with the variables functions and data.")],
    timeout: Annotated[str | None, typer.Option(help="For each call of a function: 30, 500ms, 2min.")] = None,
    compile_timeout: Annotated[str | None, typer.Option(help="For compiling a cell.")] = None,
    total_timeout: Annotated[str | None, typer.Option(help="For the whole grid, shared between its cells.")] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each cell, on fresh inputs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the inputs.")] = None,
    timer: Annotated[str | None, typer.Option(help="wall.")] = None,
    compare: Annotated[
        str | None, typer.Option(metavar="FUNCTION", help="All must give the result of this one: exit code 1 if not.")
    ] = None,
    memory_limit: Annotated[str | None, typer.Option(help="For each cell: 4GiB.")] = None,
    resume: Annotated[
        str | None, typer.Option(metavar="RUN", help="Measure only what a run lacks: its id, or: last.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks), or off.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document per cell on stdout.")] = False,
    csv: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the times there.")] = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw a heat map there: .png, .svg, .pdf.")] = None,
    fill: Annotated[
        float | None, typer.Option(help="In the CSV, the time limit in place of missing times; for outputs this.")
    ] = None,
) -> None:
    """Every function on every data point: times and statuses, under limits that hold.

    Exit codes: 0 fine (time limits are results), 1 a wrong result, 2 an error (crashed, raised, out of memory).
    """
    flags = {
        "timeout_s": timeout, "compile_timeout_s": compile_timeout, "total_timeout_s": total_timeout,
        "trials": trials, "seed": seed, "timer": timer, "memory_limit_bytes": memory_limit, "store": store,
        "fill": fill, "compare": compare, "resume": True if resume == "last" else resume,
    }  # fmt: skip
    functions, data, given = read(file)
    given |= {name: value for name, value in flags.items() if value is not None}
    _writable(csv, plot)
    code, result = measure(functions, data, given, as_json=as_json)
    _write(result, csv, plot)
    raise typer.Exit(code)


def read(file: Path) -> tuple[Any, Any, dict[str, Any]]:
    """(functions, data, settings) of a file.

    Raises:
        UsageError: there is no such file, it cannot be imported, or it lacks one of the two.
    """
    from benchax.cli.console import note
    from benchax.cli.run import printing_to_stderr
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
        if near and name not in known and near[0] not in found and not callable(found[name]):
            note(f"note: {file} sets {name!r}, which is no setting of a grid; {near[0]!r} is")
    return found["functions"], found["data"], known | {"name": path.stem} | settings


def _is_meant(name: str, value: Any) -> bool:
    """Only `make` and `check` are functions: a function of the user's that is called `store` is no setting."""
    return not callable(value) or name in ("make", "check")


def measure(functions: Any, data: Any, given: Mapping[str, Any], *, as_json: bool = False) -> tuple[int, GridResult]:
    """Measures, shows, and returns the exit code. Ctrl-C shows and keeps what is finished."""
    from benchax.api import RunOutcome, Unstored
    from benchax.cli.console import note, print_json, show
    from benchax.cli.run import rescue
    from benchax.executors.pool import shared_pool
    from benchax.grids import rendering
    from benchax.grids.grid import result_of, start_run, validate_spec
    from benchax.grids.progress import Bar

    wish = validate_spec(functions, data, given)
    with Bar(False if as_json else None) as bar:
        run = start_run(wish, shared_pool(), bar.show if bar.is_on else _lines())
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
        stored = f"; go on with: --resume {run.run_id[:12]}" if run.store is not None else ""
        note(f"interrupted: {finished} of {len(result.cells)} cells finished, and kept{stored}")
        return 130, result
    if run.unstored or any(cell.status not in (*LIMITED, *WRONG) for cell in result.cells):
        return 2, result
    return int(is_wrong(result, names_reference=isinstance(given["compare"], str))), result


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


def _lines() -> Callable[[GridStep], None]:
    """Where there is no terminal: a line on stderr for each cell."""
    from benchax.cli.console import note

    last = -1

    def show(step: GridStep) -> None:
        nonlocal last
        if step.done != last:
            last = step.done
            note(f"measuring {step.done + 1}/{step.total} {' '.join(step.cell.split())}")

    return show


def _writable(*paths: Path | None) -> None:
    """A slip in a path is told before an hour of measuring, not after it."""
    for path in paths:
        if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
            raise UsageError(f"cannot write to {str(path)!r}", "a file in a folder that exists")


def _write(result: GridResult, csv: Path | None, plot: Path | None) -> None:
    from benchax.cli.console import note

    if csv is not None:
        result.to_csv(csv)
        note(f"times written to {csv}")
    if plot is not None:
        try:
            result.plot().savefig(plot)
        except ValueError as error:  # matplotlib's, for a suffix that it does not know
            raise UsageError(f"cannot draw to {str(plot)!r}", "a file that ends in .png, .svg or .pdf") from error
        note(f"heat map drawn to {plot}")
