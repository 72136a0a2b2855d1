"""Runs: what one call of a command, or one session, stored together, newest first."""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import func, select

from benchax.store.base import StoredRun, run_of
from benchax.store.database import DatabaseStore
from benchax.store.schema import cases, measurements

LAST = "last"
_LAST = re.compile(r"last(?:~(\d{1,9}))?")


def list_runs(store: DatabaseStore, limit: int | None = None) -> list[StoredRun]:
    """Runs, newest first; at most `limit`."""
    newest = _newest_ids(store, limit, 0)
    m = measurements.c
    columns = (m.run_id, m.started_at, m.status, m.commit, m.is_dirty, m.host, m.backend, m.device_kind, m.jax)
    statement = (
        select(cases.c.name, *columns)
        .join_from(measurements, cases, m.case_id == cases.c.id)
        .where(m.run_id.in_(newest))
        .order_by(m.id)
    )
    found: dict[str, list[tuple[Any, ...]]] = {run_id: [] for run_id in newest}
    for name, run_id, *rest in store.read(lambda c: c.execute(statement).all(), [], since=1):
        found[run_id].append((name, *rest))
    return [run_of(run_id, rows) for run_id, rows in found.items()]


def nth_newest(store: DatabaseStore, reference: str) -> str | None:
    """The run that "last", "last~1" (the one before it), ... means; None if it means none, or is no such word."""
    match = _LAST.fullmatch(reference)
    if match is None:
        return None
    found = _newest_ids(store, 1, int(match[1] or 0))
    return found[0] if found else None


def is_relative(reference: str) -> bool:
    """Is it "last", or "last~1"?"""
    return _LAST.fullmatch(reference) is not None


def _newest_ids(store: DatabaseStore, limit: int | None, offset: int) -> list[str]:
    """By the newest row of each: a run that was resumed is as new as what was added."""
    m = measurements.c
    # An index of its own (run_id) answers this without a look at the rows.
    statement = select(m.run_id).group_by(m.run_id).order_by(func.max(m.id).desc()).offset(offset).limit(limit)
    return list(store.read(lambda c: c.execute(statement).scalars().all(), [], since=1))
