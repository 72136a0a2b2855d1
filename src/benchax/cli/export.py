"""`benchax export`: writes a stored run in the format of another tool, to stdout or to a file."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from benchax.cli.console import note, print_content
from benchax.cli.options import Store
from benchax.cli.output_files import write_text
from benchax.cli.store import open_listed_store
from benchax.errors import UsageError
from benchax.model import METRICS, Comparison, Measurement
from benchax.reporting import asv
from benchax.reporting.exports import ASV, FORMATS, ExportedCase, check_format, entries
from benchax.store.baselines import rows_of
from benchax.store.comparisons import history
from benchax.store.database import DatabaseStore
from benchax.units import plural


def export(
    format: Annotated[
        str,
        typer.Option(
            "--format",
            "-f",
            help="asv, bencher, csv, github-action, google-benchmark, json, junit, markdown, pytest-benchmark.",
        ),
    ],
    reference: Annotated[
        str, typer.Argument(metavar="[RUN]", help="A baseline's name, a run, a commit, or: last, last~1.")
    ] = "last",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="PATH", help="Write to this file, or for asv to this folder."),
    ] = None,
    timer: Annotated[str | None, typer.Option(help="Export times of this timer (default: each headline).")] = None,
    store: Store = None,
) -> None:
    """Write stored results in the format of another tool."""

    check_format(format)
    if format == ASV and output is None:
        raise UsageError("asv's results are several files", "--output FOLDER", "the results_dir of asv.conf.json")
    database = open_listed_store(store)
    rows = rows_of(database, reference)
    found = entries(rows, find_comparisons(database, rows), timer)
    if format == ASV and output is not None:
        _write_asv(output, found)
    elif output is not None:
        write_text(output, FORMATS[format](found))
    else:
        print_content(FORMATS[format](found).removesuffix("\n"))
    without = sum(entry.samples is None for entry in found)
    where = f" to {output}" if output else ""
    note(plural(len(found), "case") + where + (f", {without} of them without times" * bool(without)))


def find_comparisons(store: DatabaseStore, rows: Sequence[Measurement]) -> list[Comparison]:
    """Returns the newest comparison of each row by each metric, if its candidate ran the measured code."""

    found: list[Comparison] = []
    for m in rows:
        for metric in METRICS:
            found += [c for c in history(store, m.case, metric) if is_of(c, m)][-1:]
    return found


def is_of(c: Comparison, m: Measurement) -> bool:
    """Did the candidate of `c` run the same code as `m`: the same program, or the same commit without changes?

    With the same commit, the two commands might keep programs that differ in a name.
    """
    if c.candidate.program is not None and m.program is not None and c.candidate.program == m.program.sha256:
        return True
    env = m.environment
    is_clean = env.is_dirty is False and c.candidate.is_dirty is False
    return env.commit is not None and is_clean and c.candidate.commit == env.commit


def _write_asv(folder: Path, found: Sequence[ExportedCase]) -> None:

    commits = {entry.m.environment.commit for entry in found} - {None}
    for path, text in asv.files(found, {commit: _date(commit) for commit in commits if commit}).items():
        file = folder / path
        write_text(file, asv.merge(file.read_text("utf-8"), text) if file.exists() else text)


def _date(commit: str) -> int:
    """Returns the time of the commit, in seconds since 1970. Raises `UsageError` if git doesn't know it."""

    command = ["git", "show", "--no-patch", "--format=%ct", commit, "--"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True, text=True)
        return int(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise UsageError(
            f"git does not know commit {commit[:12]} here, and asv wants its date",
            "a working directory inside the repository that was measured",
        ) from error
