"""What is stored: `benchax list`, `benchax show`, `benchax baseline` (names for runs) and `benchax import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchax.cli.console import line, note, print_json, show, show_list
from benchax.cli.options import Pattern, Store
from benchax.errors import StoreError, UsageError
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.store.base import Row
    from benchax.store.database import DatabaseStore

baseline = typer.Typer(help="Names for runs: what `benchax compare NAME` compares with.", no_args_is_help=True)


def open_listed_store(store: str | None) -> DatabaseStore:
    """The store that --store, or else the options, name."""
    from benchax.options import resolve
    from benchax.store.database import open_store

    where = resolve(command_line={"store": store}).store
    if where in (None, "off"):
        raise UsageError("there are no rows: storing is switched off here", "a folder", "name it with --store")
    return open_store(where)


def list_rows(
    pattern: Pattern = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10**9, help="At most so many, the newest.")] = 30,
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="Whole rows as JSON, one per line.")] = False,
) -> None:
    """List stored rows; `benchax show ID` shows one."""
    from benchax.reporting.document import Document
    from benchax.reporting.tables import stored_grid

    database = open_listed_store(store)
    rows = _newest(database, pattern, limit)
    if as_json:
        for row in rows:
            print_json([database.get(row.id)])
    elif rows:
        show(Document((stored_grid(rows),)))
    else:
        note(f"no row in {database.where} is of a case {pattern!r}")


def _newest(database: DatabaseStore, pattern: str, limit: int) -> list[Row]:
    """--filter means what it means in `run`: a part of a label, parameters included, which no index can answer."""
    from benchax.discovery import matches

    if not pattern:
        return database.rows(limit=limit)
    return [row for row in database.rows() if matches(row.case, pattern)][-limit:]


def show_row(
    row: Annotated[str, typer.Argument(metavar="ID", help="As `benchax list` shows it, or: last.")] = "last",
    store: Store = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole row as JSON.")] = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="Every reading, in seconds per call: timer, tab, value.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Of each timer: mean ± standard deviation, quartiles, extremes.")
    ] = False,
) -> None:
    """Show one stored row: every stage, timer, remark, or the statistics or the raw samples."""
    from benchax.reporting.measurement import document

    database = open_listed_store(store)
    if row != "last" and not (row.isdecimal() and len(row) < 19):  # longer ones are beyond 64 bits
        raise UsageError(f"{row!r} is not the id of a row", "a number as `benchax list` shows it, or: last")
    measurement = database.get(int(row)) if row != "last" else database.query(limit=1)[-1]
    if as_json:
        print_json([measurement])
    elif samples:
        for series in measurement.samples:
            for value in series.per_call_s:
                line(f"{series.timer}\t{value!r}")
    elif statistics:
        from benchax.reporting.statistics import document as document_of_statistics

        show(document_of_statistics(measurement))
    else:
        show(document(measurement, is_full=True))


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON of pytest-benchmark.")],
    store: Store = None,
) -> None:
    """Store the results in a file of pytest-benchmark. Those that are there already are not stored again."""
    from benchax.store.imports import read_pytest_benchmark

    rows = read_pytest_benchmark(file)
    database = open_listed_store(store)
    try:
        there = {row.case for row in database.rows(run=rows[0].run_id)}
    except StoreError:  # as a rule nothing was ever stored there; what else is wrong, the first row will say
        there = set()
    new = [m for m in rows if m.case not in there]
    with database.held_open():
        for m in new:
            database.append(m)
    known = f", {len(rows) - len(new)} were there already" * (len(new) < len(rows))
    note(f"{plural(len(new), 'row')} stored in {database.where} as run {rows[0].run_id[:12]}{known}")
    if without := sum(not m.samples for m in new):
        note(f"{without} of them without readings: the file holds statistics only")


# ---- benchax baseline -------------------------------------------------------------------------------------------


@baseline.command("set")
def set_name(
    name: Annotated[str, typer.Argument(help="Such as v1.2.")],
    reference: Annotated[str, typer.Argument(metavar="[RUN]", help="A run, a commit, a baseline, or last.")] = "last",
    store: Store = None,
) -> None:
    """Give a run a name. A name that exists means the new run from then on."""
    from benchax.store.baselines import rows_of, set_baseline

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
    from benchax.store.baselines import list_baselines

    found = list_baselines(open_listed_store(store))
    if found:
        dates = [each.set_at[:16].replace("T", " ") for each in found]
        show_list([(b.name, f"run {b.run_id[:12]}", f"set {at} UTC") for b, at in zip(found, dates, strict=True)])
    else:
        note("no baselines; benchax baseline set NAME gives the last run a name")


@baseline.command("remove")
def remove_name(name: str, store: Store = None) -> None:
    """Take a name back. The run stays."""
    from benchax.store.baselines import remove

    remove(open_listed_store(store), name)
