"""`benchax grid FILE`: runs functions × data of a Python file. Each cell has a worker, killed if it takes too long.

The file sets `functions` and `data`. It can set the other arguments of `benchax.grid` (`make`, `trials`, `timeout_s`,
`axis`, …) under the same names; flags win over the file. A cell that reached a limit is a result. So the exit code is 2
only if a cell crashed, raised or ran out of memory, or if benchax could not store rows. It is 1 if a result is wrong:
`check` refuses it, its shape is wrong, or it differs from that of the function in `compare`. Functions of a
grid can differ by design. Without a name in `compare`, benchax shows a difference and does nothing more.

`benchax compiled-grid FUNCTION... INPUT...`: runs functions × repetitions inside one compiled call per parameter.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from benchax import codec
from benchax.cli.compare import is_function, labels
from benchax.cli.console import (
    Given,
    Html,
    On,
    Params,
    check_drawable,
    check_writable,
    line,
    note,
    printing_to_stderr,
    show,
    takes_options,
    write_documents,
    write_figure,
    write_page,
)
from benchax.discovery import files, import_file, resolve_target, target_cases, values_of
from benchax.errors import UsageError
from benchax.model import Absent
from benchax.progress import show_progress
from benchax.reporting import terminal
from benchax.reporting.document import Document, Heading, list_parts
from benchax.units import plural
from benchax.whole_files import refuse_unwritable

if TYPE_CHECKING:
    from benchax.compiled_grids.compiled import CompiledGrid
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
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the times to FILE.", callback=check_writable)
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw a heat map to FILE: .png, .svg, .pdf.", callback=check_drawable),
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
    functions, data, settings = read(file)
    settings |= {name: value for name, value in given.items() if value is not None}
    code, result = measure(functions, data, settings, as_json=as_json, on=on, folder=file.resolve().parent)
    if csv is not None:
        with refuse_unwritable(csv):
            result.to_csv(csv)
        note(f"times written to {csv}")
    write_figure(plot, "heat map", result.plot)
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
        # A typo in a setting would go unnoticed, because a file may define any other variables.
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
        is_value = not callable(found[name]) and not isinstance(found[name], ModuleType)  # import time
        if near and name not in known and near[0] not in found and is_value:
            note(f"note: {file} sets {name!r}, which isn't a setting of a grid; {near[0]!r} is")
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

    spec = validate_spec(functions, data, given)
    running: list[GridRun] = []
    interrupted = False
    with (
        show_progress(True, has_bar=not as_json, results=lambda: _lines_of(running)) as report,
        open_agents(on, folder) as agents,
    ):
        run = start_run(spec, agents, report)
        running.append(run)
        try:
            run.go()
        except KeyboardInterrupt:
            interrupted = True
    result = result_of(run)
    try:
        if as_json:
            for row in result.measurements:
                show(codec.encode(row))
        else:
            show(rendering.document(result))
    finally:  # also when stdout is closed or full
        for text in rescue([Unstored(row, error) for row, error in run.unstored]):
            note(text)
    if interrupted:
        finished = sum(cell.status not in ("not_run", "interrupted") for cell in result.cells)
        # The store has no run without finished cells.
        kept = f", and kept; go on with: --resume {run.run_id[:12]}" if finished and run.store is not None else ""
        note(f"interrupted: {finished} of {plural(len(result.cells), 'cell')} finished{kept}")
        return 130, result
    if run.unstored or any(cell.status not in (*LIMITED, *WRONG) for cell in result.cells):
        return 2, result
    return int(is_wrong(result, names_reference=isinstance(given["compare"], str))), result


def _lines_of(running: Sequence[GridRun]) -> list[str]:
    """Returns the lines of a table with the cells that have ended so far."""
    from benchax.grids.grid import result_of
    from benchax.grids.rendering import MOST_POINTS, table

    if not running or not running[0].cells:
        return []
    run = running[0]
    # No more cells than fit: a grid can have a million, and each of them draws the table again.
    cells = dict(islice(run.cells.items(), MOST_POINTS * len(run.spec.functions)))
    shown = replace(result_of(run), by_key=cells, data=tuple(dict.fromkeys(label for _, label in cells)))
    return terminal.to_text(Document((table(shown),))).splitlines()


def is_wrong(result: GridResult, *, names_reference: bool) -> bool:
    """Is a result refused, or is its shape wrong? If the user named a reference function, does a result differ?"""

    if any(cell.status in WRONG for cell in result.cells):
        return True
    compared = [cell.agreement for cell in result.cells if not isinstance(cell.agreement, Absent)]
    return names_reference and any(not trial.agrees for cell in compared for trial in cell)


# ---- benchax compiled-grid -------------------------------------------------------------------------------------------
#
# With `--python-loop`, a Python loop also benchmarks the same functions and data. The two run alternately, which shows
# the cost of benchmarking. The command stores nothing.


EXAMPLE = "benchax compiled-grid model.py:loop model.py:scan 'f32[{n}]' -p n=64,1024"


@takes_options(
    "seed",
    timeout_s="Limit all repetitions of one function: 2.5, 500ms, 2min.",
    total_timeout_s="Limit the whole call: 2.5, 500ms, 2min.",
)
def compiled_grid(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:FUNCTION... INPUT...",
            help="Functions, then inputs for all: specs such as f32[8,128], or f32[{n}] with -p n=4,8.",
        ),
    ],
    *,
    params: Params = None,
    repeats: Annotated[int, typer.Option(metavar="N", help="Repeat each function at most N times.")] = 100,
    python_loop: Annotated[
        bool, typer.Option("--python-loop", help="Also run the same benchmark by a Python loop, alternately.")
    ] = False,
    rounds: Annotated[int, typer.Option(metavar="N", help="Run both loops N times (with --python-loop).")] = 5,
    given: Given,
    html: Html = None,
) -> None:
    """Run functions × repetitions in one compiled call, with the clock and the limits inside.

    Exit codes: 0 fine (time limits are results), 2 an error (a function that does not trace).
    """
    from benchax.compiled_grids.compiled import compiled_grid as make_grid

    seed = given.pop("seed") or 0
    functions, data = printing_to_stderr(lambda: read_words(what, params or [], seed))
    h = make_grid(functions, repeats=repeats, **given)
    raise typer.Exit(measure_compiled(h, data, rounds if python_loop else None, html))


def read_words(words: list[str], params: list[str], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns (functions by name, inputs by label)."""
    from benchax.measuring.inputs import make_inputs

    targets = [word for word in words if is_function(word)]
    inputs = [word for word in words if word not in targets]
    if not targets or not inputs:
        missing = "functions" if not targets else "inputs"
        raise UsageError(f"there are no {missing} in {' '.join(words)!r}", "functions, then inputs of all", EXAMPLE)
    cases = target_cases(targets[0], inputs, dict(map(values_of, params)))
    data: dict[str, Any] = {}
    for case in cases:
        made = make_inputs(case, seed)
        if made.static or made.kwargs:
            raise UsageError("a compiled grid with static inputs", "specs of arrays, such as f32[8]", EXAMPLE)
        label = ", ".join(f"{name}={value}" for name, value in case.id.params) or " ".join(inputs)
        data[label] = tuple(made.args)
    return {name: resolve_target(word) for name, word in labels(targets).items()}, data


def measure_compiled(h: CompiledGrid, data: dict[str, Any], rounds: int | None, html: Path | None = None) -> int:
    """Measures, shows, and returns the exit code."""
    from benchax.compiled_grids.compiled_result import Status

    if rounds is not None:
        found = printing_to_stderr(lambda: h.compare_python_loop(data, rounds=rounds))
        show(found.document())
        write_documents(html, [found.document()])
        return 0
    code, documents = 0, list[Document]()
    for k, (label, x) in enumerate(data.items()):
        result = printing_to_stderr(lambda x=x: h(x))
        if k:
            line("")
        document = result.document()
        documents.append(Document((Heading(label, 1), *document.blocks)))
        # A spec is its own signature, which the result has.
        if result.circumstances is None or result.circumstances.inputs != label:
            line(label)
        show(document)
        code = 2 if (result.status == Status.error).any() else code
    write_documents(html, list_parts("Compiled grid", documents))
    note("a compiled grid isn't stored")
    return code
