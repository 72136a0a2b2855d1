"""`benchax export`: writes a stored run in the format of another tool, to stdout or to a file.

`benchax report`: writes stored results as one self-contained page that you can send.

`benchax site`: writes the history in a store as pages. You can open them from disk or put them on any server.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from benchax.cli.console import Pattern, Store, check_writable, note, print_content
from benchax.cli.profile import read_trace
from benchax.cli.store import open_listed_store
from benchax.codec import VERSION_KEY
from benchax.comparing.ranking import Comparisons
from benchax.discovery import matches
from benchax.environment import ask_git
from benchax.errors import FormatError, StoreError, UsageError
from benchax.json_values import decode_value
from benchax.model import Comparison, Measurement
from benchax.reporting import asv
from benchax.reporting.display import documents_of
from benchax.reporting.document import Document, list_parts
from benchax.reporting.exports import ASV, FORMATS, ExportedCase, check_format, entries
from benchax.reporting.html import save_page
from benchax.results.audit import Audit, Checklist
from benchax.results.experiment import Experiment
from benchax.store.baselines import rows_of
from benchax.store.comparisons import find_newest
from benchax.store.database import DatabaseStore
from benchax.store.load import Rows, load
from benchax.units import plural, size
from benchax.whole_files import write_text

Result = Experiment | Audit | Checklist


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

    return [c for m in rows for c in find_newest(store, m.case, partial(is_of, m=m))]


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
        write_text(file, asv.merge(file.read_bytes(), text) if file.exists() else text)


def _date(commit: str) -> int:
    """Returns the time of the commit, in seconds since 1970. Raises `UsageError` if git doesn't know it."""
    answer = ask_git(Path(), "show", "--no-patch", "--format=%ct", commit, "--")
    if answer is None:
        raise UsageError(
            f"git does not know commit {commit[:12]} here, and asv needs its date",
            "a working directory inside the repository that was measured",
        )
    return int(answer)


# ---- benchax report --------------------------------------------------------------------------------------------------


DEFAULT = Path("report.html")
JSON = (".json", ".jsonl")


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[WHAT]",
            help="A run, a baseline's name, a commit, or: last, last~1. Or a file: .jsonl with rows; JSON of an "
            "experiment, an audit or a checklist; the trace of a profile.",
        ),
    ] = "last",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.", callback=check_writable)
    ] = DEFAULT,
    pattern: Pattern = "",
    store: Store = None,
) -> None:
    """Write stored results as a page: all numbers and interactive charts in one file."""

    save_page(output, _documents(what, pattern, store))
    note(f"{output}: {size(output.stat().st_size)}")


def _documents(what: str, pattern: str, store: str | None) -> tuple[Document, ...]:
    """Returns the documents of a file or folder, if one has that name. Otherwise returns those of stored rows."""

    path = Path(what)
    if path.suffix in JSON or (os.sep in what and path.exists()) or path.suffix == ".pb":
        return _of_file(path, pattern)
    database = open_listed_store(store)
    rows = _choose(rows_of(database, what), what, pattern)
    head, *parts = documents_of(rows)
    found = tuple(find_comparisons(database, rows))
    return (head, *(documents_of(Comparisons(found)) if found else ()), *parts)


def _of_file(path: Path, pattern: str) -> tuple[Document, ...]:

    if path.suffix not in JSON:
        return documents_of(read_trace(path))
    results = read_results(path) if path.is_file() else None
    if results is None:
        return documents_of(_choose(load(path), str(path), pattern))
    if pattern:
        raise UsageError(f"--filter {pattern!r} of {str(path)!r}, which holds no rows", "--filter of rows only")
    parts = [part for found in results for part in documents_of(found)]
    return list_parts(f"{plural(len(results), 'result')} of {path.name}", parts)


def _choose(rows: Sequence[Measurement], what: str, pattern: str) -> Rows:

    chosen = tuple(m for m in rows if matches(m.case, pattern))
    if rows and not chosen:
        raise UsageError(f"no case of {what!r} is called {pattern!r}", "a part of a name, or a pattern with * or ?")
    return Rows(chosen)


# ---- results that are not rows ---------------------------------------------------------------------------------------


SHOWN = 60
"""An error quotes this many characters of an unreadable line."""
READABLE = "a file that this benchax wrote: rows (run --json), experiments, audits or checklists (--json, --output)"


def read_results(file: Path) -> list[Result] | None:
    """Reads a file of results. Returns None if it holds something else, usually rows, which have separate readers.

    Raises:
        FormatError: the file holds results, but benchax could not show all of them.
        StoreError: benchax cannot read the file.
    """

    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it isn't text"
        raise StoreError(f"cannot read {str(file)!r}: {why}", READABLE) from error
    first = next((line for line in lines if line.strip()), "")
    kind, document = _kind_of(first)
    if kind is None:
        if isinstance(document, dict) and VERSION_KEY not in document:
            raise FormatError(f"{str(file)!r} holds nothing that can be shown, such as {first[:SHOWN]!r}", READABLE)
        return None
    return [_read_line(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _kind_of(line: str) -> tuple[type[Result] | None, Any]:
    """(the kind of a result, by the keys that only this kind has; the document)"""
    try:
        document: Any = json.loads(line)
    except (ValueError, RecursionError):
        return None, None
    keys = set(document) if isinstance(document, dict) else set()
    kinds: dict[str, type[Result]] = {"baseline": Experiment, "checked": Audit, "ticks": Checklist}
    return next((kind for key, kind in kinds.items() if {key, "name", "signature"} <= keys), None), document


def _read_line(file: Path, number: int, line: str) -> Result:

    kind, document = _kind_of(line)
    where = f"line {number} of {str(file)!r}"
    if kind is None:
        raise FormatError(f"{where} isn't an experiment, audit or checklist, as the first one is", READABLE)
    found: Result = decode_value(document, kind, f"{where} cannot be read back")
    if json.loads(json.dumps(found.asdict(), default=str)) != document:
        raise FormatError(f"{where} was written by another version, and parts of it would be lost", READABLE)
    return found


# ---- benchax site ----------------------------------------------------------------------------------------------------


SITE = Path("site")


def site(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Write the site to this folder.")
    ] = SITE,
    store: Store = None,
) -> None:
    """Write a site of the history: recent changes, a page for each case, and any two commits side by side.

    The next time, it writes only pages whose rows have changed.
    """
    from benchax.reporting.site.publishing import publish

    done = publish(open_listed_store(store), output)
    pages = f"{done.written} of {plural(done.cases, 'page')} of cases written"
    versions = f"{done.versions_written} of {plural(done.versions, 'version')}"
    note(f"{done.folder / 'index.html'}: {pages}, {versions}, {plural(done.others, 'other file')}")
