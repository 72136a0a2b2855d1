"""Runs, newest first; baselines, which are names for runs; and what a word on the command line refers to.

A run is what one call of a command, or one session, stored together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from benchax.errors import UsageError, one_of
from benchax.model import CaseId, Measurement
from benchax.store.database import DatabaseStore
from benchax.store.schema import Row, limited, program_of, read_rows

T = TypeVar("T")

LAST = "last"
_LAST = re.compile(r"last(?:~(\d{1,9}))?")
_COMMIT = re.compile(r"[0-9a-fA-F]{4,}")

REMOVED = ""
"""The run of a name that was taken back: nothing is ever deleted."""


@dataclass(frozen=True)
class Baseline:
    """A run under a name."""

    name: str
    run_id: str
    set_at: str
    """UTC, ISO 8601."""


def set_baseline(store: DatabaseStore, name: str, run_id: str) -> Baseline:
    """From now on `name` means that run.

    Raises:
        UsageError: a name that means something else already ("last"), or is empty.
    """
    # For `benchax compare`, a word with a colon is a function.
    if not name.strip() or _LAST.fullmatch(name) or ":" in name:
        expected = f"a name without a colon, other than {LAST!r}, such as v1.2"
        raise UsageError(f"a baseline cannot be called {name!r}", expected)
    return _write(store, name, run_id)


def _write(store: DatabaseStore, name: str, run_id: str) -> Baseline:
    found = Baseline(name, run_id, datetime.now(UTC).isoformat(timespec="microseconds"))
    store.write(lambda c: c.insert("baselines", [vars(found)]))
    return found


def list_baselines(store: DatabaseStore) -> list[Baseline]:
    """The names that hold now, oldest first."""
    newest = (
        "SELECT name, run_id, set_at FROM baselines "
        "WHERE id IN (SELECT max(id) FROM baselines GROUP BY name) ORDER BY id"
    )
    found = store.read(lambda c: [Baseline(*row) for row in c.execute(newest)], [])
    return [baseline for baseline in found if baseline.run_id != REMOVED]


def remove(store: DatabaseStore, name: str) -> None:
    """`name` means nothing any more. Raises `UsageError` if it does not now."""
    names = [baseline.name for baseline in list_baselines(store)]
    if name not in names:
        raise UsageError(
            f"there is no baseline {name!r}", one_of(names, name) if names else "a name; the store has no baseline"
        )
    _write(store, name, REMOVED)


def rows_of(store: DatabaseStore, reference: str) -> list[Measurement]:
    """Returns the newest row of each case that `reference` means. The forms of a reference, in this order: a baseline's
    name, "last" (the newest run), "last~1" (the one before it), the id of a run or its first digits, or a commit or its
    first digits.

    Raises:
        UsageError: the reference has no meaning here.
    """
    # Rows come oldest first, so the newest of each case remains.
    return list({m.case: m for m in _meant(store, reference, store.query)}.values())


def run_ids_of(store: DatabaseStore, reference: str) -> list[str]:
    """The runs that `reference` means, oldest first: of a commit there may be several. Raises as `rows_of` does."""
    return list(dict.fromkeys(row.run_id for row in _meant(store, reference, store.rows)))


def _meant(store: DatabaseStore, reference: str, query: Callable[..., list[T]]) -> list[T]:
    """All that `query` finds of a reference."""
    found: list[T] = []
    if run := find_run(store, reference):
        found = query(run=run)
    elif _COMMIT.fullmatch(reference):
        found = query(commit=reference.lower())
    if not found:
        names = [baseline.name for baseline in list_baselines(store)]
        known = f" (here: {', '.join(names)})" if names else ""
        raise UsageError(
            f"{reference!r} isn't a baseline, run or commit in {store.where}",
            f"a name given with `benchax baseline set`{known}, {LAST!r}, {LAST + '~1'!r}, or the first digits of a run "
            "or a commit",
            "see `benchax runs`",
        )
    return found


def find_run(store: DatabaseStore, reference: str) -> str | None:
    """Returns the run for a baseline's name, "last", "last~1", or the first digits of an id. None if there is no such
    run.
    """
    named = next((b.run_id for b in list_baselines(store) if b.name == reference), None)
    return named or nth_newest(store, reference) or _by_digits(store, reference)


def _by_digits(store: DatabaseStore, reference: str) -> str | None:
    if not reference:
        return None
    statement = (
        f"SELECT run_id FROM measurements WHERE substr(run_id, 1, {len(reference)}) = ? ORDER BY id DESC LIMIT 1"
    )
    # since=1: an old database has runs even if it has no baselines. Reading it must not require a newer version.
    return store.read(lambda c: c.scalar(statement, [reference]), None, since=1)


def program(store: DatabaseStore, m: Measurement) -> bytes | None:
    """The program that `m` ran; None if no program was kept."""
    sha256 = m.program.sha256 if m.program else None
    return store.read(lambda c: program_of(c, sha256), None) if sha256 else None


def by_case(rows: Sequence[Measurement]) -> dict[CaseId, Measurement]:
    return {m.case: m for m in rows}


# ---- runs -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredRun:
    """The rows that a run stored."""

    run_id: str
    started_at: str
    """The start of its first row; UTC, ISO 8601."""
    rows: int
    failed: int
    cases: tuple[str, ...]
    """Names, without parameters, in the order in which they came."""
    commit: str | None
    is_dirty: bool | None
    host: str
    backend: str | None
    device_kind: str | None
    jax: str | None


def list_runs(store: DatabaseStore, limit: int | None = None) -> list[StoredRun]:
    """Runs, newest first; at most `limit`."""
    newest = _newest_ids(store, limit, 0)
    return store.read(lambda c: [_run_of(read_rows(c, "m.run_id = ?", [run_id])) for run_id in newest], [], since=1)


def _run_of(rows: Sequence[Row]) -> StoredRun:
    first, names = rows[0], tuple(dict.fromkeys(row.case.name for row in rows))
    return StoredRun(
        first.run_id, first.started_at, len(rows), sum(row.status != "ok" for row in rows), names, first.commit,
        first.is_dirty, first.host, first.backend, first.device_kind, first.jax,
    )  # fmt: skip


def nth_newest(store: DatabaseStore, reference: str) -> str | None:
    """The run that "last", "last~1" (the one before it), ... means; None if it means none, or is no such word."""
    match = _LAST.fullmatch(reference)
    if match is None:
        return None
    return next(iter(_newest_ids(store, 1, int(match[1] or 0))), None)


def _newest_ids(store: DatabaseStore, limit: int | None, offset: int) -> list[str]:
    """By the newest row of each: a run that was resumed is as new as what was added."""
    # The index on run_id answers this without reading the rows.
    statement = f"SELECT run_id FROM measurements GROUP BY run_id ORDER BY max(id) DESC{limited(limit, offset)}"
    return [run_id for (run_id,) in store.read(lambda c: c.execute(statement), [], since=1)]
