"""Commands for stored rows: `benchax runs`, `list`, `show`, `baseline` (names for runs), `import`, and `migrate`."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated

import typer

from benchax import codec
from benchax.cli.console import Pattern, Reasons, Store, line, note, show, show_list
from benchax.discovery import matches
from benchax.errors import StoreError, UsageError
from benchax.options import resolve
from benchax.reporting.document import Document
from benchax.reporting.measurement import document, document_of_statistics
from benchax.reporting.tables import describe_date, run_grid, stored_grid
from benchax.store import baselines
from benchax.store.baselines import list_baselines, remove, rows_of, set_baseline
from benchax.store.database import DatabaseStore, open_store
from benchax.store.imports import read_pytest_benchmark
from benchax.units import plural

baseline = typer.Typer(help="Give names to runs, so that `benchax compare NAME` can use them.", no_args_is_help=True)


def open_listed_store(store: str | None) -> DatabaseStore:
    """Opens the store that --store or the options name."""

    where = resolve(command_line={"store": store}).store
    if where in (None, "off"):
        raise UsageError("there are no rows: storing is switched off here", "a folder", "name it with --store")
    return open_store(where)


def list_runs(
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10**9, help="Maximum number of runs, newest first.")
    ] = 30,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write one JSON object per run and line.")] = False,
) -> None:
    """List the runs in the store, the newest last; `benchax list --run RUN` lists the rows of one.

    Name a run by the first digits of its id, or as last, last~1 (the one before it), and so on.
    """

    database = open_listed_store(store)
    runs = baselines.list_runs(database, limit)
    names = {baseline.run_id: baseline.name for baseline in baselines.list_baselines(database)}
    if as_json:
        for run in runs[::-1]:
            show(json.dumps(dataclasses.asdict(run)))
    else:
        show(Document((run_grid(runs[::-1], names),)))


def list_rows(
    pattern: Pattern = "",
    run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="List only rows of this run: last, last~1, an id, a commit, or a baseline."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", "-n", min=1, max=10**9, help="Maximum number of rows, newest first.")
    ] = 30,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write whole rows as JSON, one per line.")] = False,
) -> None:
    """List stored rows; `benchax show ID` shows one, `benchax runs` lists whole runs."""

    database = open_listed_store(store)
    runs = baselines.run_ids_of(database, run) if run else [None]
    # Filters like `run`, by part of a label with its parameters, for which there is no index.
    found = [row for each in runs for row in database.rows(run=each, limit=None if pattern else limit)]
    rows = [row for row in found if matches(row.case, pattern)][-limit:]
    if as_json:
        for row in rows:
            show(codec.encode(database.get(row.id)))
    elif rows:
        show(Document((stored_grid(rows),)))
    else:
        note(f"no row in {database.where} is of a case {pattern!r}")


def show_row(
    row: Annotated[str, typer.Argument(metavar="ID", help="An id from `benchax list`, or: last, last~1.")] = "last",
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write the whole row as JSON.")] = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="Print each reading, in seconds per call: timer, tab, value.")
    ] = False,
    statistics: Annotated[
        bool,
        typer.Option("--statistics", help="Show mean ± standard deviation, quartiles, and extremes of each timer."),
    ] = False,
    is_verbose: Reasons = False,
) -> None:
    """Show one stored row: every stage, timer, and remark, or its statistics, or its raw samples."""

    database = open_listed_store(store)
    measurement = database.get(_id_of(database, row))
    if as_json:
        show(codec.encode(measurement))
    elif samples:
        for series in measurement.samples:
            for value in series.per_call_s:
                line(f"{series.timer}\t{value!r}")
    else:
        show(document_of_statistics(measurement) if statistics else document(measurement, is_verbose))


def _id_of(database: DatabaseStore, word: str) -> int:
    if word.isdecimal() and len(word) < 19:  # longer ones are beyond 64 bits
        return int(word)
    words = re.fullmatch(r"last(?:~(\d{1,6}))?", word)
    if words is None:
        raise UsageError(f"{word!r} is not the id of a row", "a number as `benchax list` shows it, or: last, last~1")
    back = int(words[1] or 0)
    found = database.rows(limit=back + 1)
    if len(found) <= back:
        rows = plural(len(found), "row")
        raise UsageError(f"there is no row {word!r}: {database.where} has {rows}", "last, or an id")
    return found[0].id


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON file of pytest-benchmark.")],
    store: Store = None,
) -> None:
    """Store the results in a file of pytest-benchmark, except those that are already in the store."""

    rows = read_pytest_benchmark(file)
    database = open_listed_store(store)
    try:
        there = {row.case for row in database.rows(run=rows[0].run_id)}
    except StoreError:  # as a rule nothing was ever stored there; what else is wrong, the first row will say
        there = set()
    new = [m for m in rows if m.case not in there]
    database.append_all(new)
    known = f", {len(rows) - len(new)} were there already" * (len(new) < len(rows))
    note(f"{plural(len(new), 'row')} stored in {database.where} as run {rows[0].run_id[:12]}{known}")
    if without := sum(not m.samples for m in new):
        note(f"{without} of them without readings: the file holds statistics only")


# ---- benchax migrate --------------------------------------------------------------------------------------------


def migrate(store: Store = None) -> None:
    """Make the tables of a store, or bring them up to date.

    Storing a row also does this, if the writer may make tables. Otherwise, the owner of the tables runs this command.
    """
    database = open_listed_store(store)
    before, now = database.migrate()
    was = "made" if not before else "up to date" if before == now else f"brought from version {before} up to date"
    note(f"the tables in {database.where} are {was} (version {now})")


# ---- benchax baseline -------------------------------------------------------------------------------------------


@baseline.command("set")
def set_name(
    name: Annotated[str, typer.Argument(help="A name such as v1.2.")],
    reference: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A run, a commit, a baseline, or last, last~1.")
    ] = "last",
    store: Store = None,
) -> None:
    """Give a run a name. An existing name moves to the new run."""

    database = open_listed_store(store)
    rows = rows_of(database, reference)
    newest = rows[-1].run_id
    set_baseline(database, name, newest)
    kept = [m for m in rows if m.run_id == newest]
    without = [m.case.label for m in kept if m.program is None]
    note(f"{name} is run {newest[:12]}: {plural(len(kept), 'case')}")
    if without:
        note(f"without a program, and so not comparable: {', '.join(without)}")


@baseline.command("list")
def list_names(store: Store = None) -> None:
    """List the names and their runs."""

    found = list_baselines(open_listed_store(store))
    if found:
        show_list([(b.name, f"run {b.run_id[:12]}", f"set {describe_date(b.set_at)} UTC") for b in found])
    else:
        note("no baselines; benchax baseline set NAME gives the last run a name")


@baseline.command("remove")
def remove_name(name: str, store: Store = None) -> None:
    """Remove a name. The run stays."""

    remove(open_listed_store(store), name)
