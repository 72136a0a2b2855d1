"""Comparisons in the store: the history of ratios, which may be put side by side where times may not; and timelines.

A series of them is of one case, one metric and one baseline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from benchax.codec import decode_comparison, decode_params, encode
from benchax.model import METRICS, CaseId, Comparison, Metric
from benchax.store.database import DatabaseStore
from benchax.store.schema import Connection, Row, case_key, comparison_columns, read_rows


def append(store: DatabaseStore, found: Sequence[Comparison]) -> None:
    """All or none; durable when this returns. Raises `StoreError`."""

    def work(connection: Connection) -> None:
        connection.insert("comparisons", [comparison_columns(connection, c, encode(c)) for c in found])

    store.write(work)


def history(
    store: DatabaseStore, case: CaseId, metric: Metric = "run", baseline: str | None = None
) -> list[Comparison]:
    """Comparisons of one case, oldest first; with one baseline, or with all."""
    condition, values = 'cases."key" = ? AND metric = ?', [case_key(case), metric]
    if baseline is not None:
        condition, values = f"{condition} AND baseline = ?", [*values, baseline]
    statement = (
        "SELECT document FROM comparisons JOIN cases ON cases.id = comparisons.case_id "
        f"WHERE {condition} ORDER BY comparisons.id"
    )
    return store.read(lambda c: [decode_comparison(text) for (text,) in c.execute(statement, values)], [])


def find_newest(store: DatabaseStore, case: CaseId, is_meant: Callable[[Comparison], bool]) -> list[Comparison]:
    """By each metric, the newest comparison of a case that is meant. `is_meant` sees them without their samples."""
    statement = (
        "SELECT metric, document FROM comparisons JOIN cases ON cases.id = comparisons.case_id "
        'WHERE cases."key" = ? ORDER BY comparisons.id DESC'
    )
    found: dict[str, Comparison] = {}
    for metric, text in store.read(lambda c: c.execute(statement, [case_key(case)]), []):
        if metric not in found and is_meant(decode_comparison(text, with_blocks=False)):
            found[metric] = decode_comparison(text)
    return [found[metric] for metric in METRICS if metric in found]


@dataclass(frozen=True)
class Series:
    """Comparisons of one case with one baseline by one metric."""

    case: CaseId
    metric: Metric
    baseline: str
    count: int


def list_series(store: DatabaseStore) -> list[Series]:
    """All of them; those with the newest comparison last."""
    statement = (
        "SELECT cases.name, cases.params, cases.variant, cases.tag, metric, baseline, count(*) "
        "FROM comparisons JOIN cases ON cases.id = comparisons.case_id GROUP BY cases.id, metric, baseline "
        "ORDER BY max(comparisons.id)"
    )
    rows = store.read(lambda c: c.execute(statement), [])
    return [
        Series(CaseId(name, decode_params(params), variant, tag), cast("Metric", metric), baseline, count)
        for name, params, variant, tag, metric, baseline, count in rows
    ]


# ---- timelines -------------------------------------------------------------------------------------------------------
#
# Queries for a site of the history: the cases with something new, then one case at a time, never all rows at once.
#
# A store only grows. So later queries use the state that `list_activity` has seen: rows that are written in between are
# left for the next time.


@dataclass(frozen=True)
class CaseActivity:
    """How much a store holds of a case."""

    id: int
    """Within its store."""
    key: str
    """The same in all stores: 64 hexadecimal digits."""
    case: CaseId
    rows: int
    newest_row: int
    """The greatest id; 0 if there are no rows."""
    comparisons: int
    newest_comparison: int

    @property
    def seen(self) -> list[int]:
        """Differs as soon as anything is added."""
        return [self.rows, self.newest_row, self.comparisons, self.newest_comparison]


def list_activity(store: DatabaseStore) -> list[CaseActivity]:
    """All cases that have rows or comparisons, in the order in which they came.

    Raises:
        StoreError: nothing was ever stored there, or it cannot be read.
    """
    # Indexes answer both; no row is read.
    rows = store.read(lambda c: _count(c, "measurements"), {}, since=1)
    compared = store.read(lambda c: _count(c, "comparisons"), {}, since=2)
    columns = 'SELECT id, "key", name, params, variant, tag FROM cases ORDER BY id'
    known = store.read(lambda c: c.execute(columns), [], since=1)
    return [
        CaseActivity(
            id, key, CaseId(name, decode_params(params), variant, tag), *rows.get(id, (0, 0)), *compared.get(id, (0, 0))
        )
        for id, key, name, params, variant, tag in known
        if id in rows or id in compared
    ]


def _count(connection: Connection, table: str) -> dict[int, tuple[int, int]]:
    """By case: (how many, the greatest id)"""
    found = connection.execute(f"SELECT case_id, count(*), max(id) FROM {table} GROUP BY case_id")
    return {case_id: (count, newest) for case_id, count, newest in found}


def read_timeline(store: DatabaseStore, found: CaseActivity) -> list[Row]:
    """The rows of a case, oldest first."""
    values = [found.id, found.newest_row]
    return store.read(lambda c: read_rows(c, "m.case_id = ? AND m.id <= ?", values), [], since=1)


def read_comparisons(store: DatabaseStore, found: CaseActivity) -> list[Comparison]:
    """The comparisons of a case without their samples, oldest first. Raises `FormatError` if one is damaged."""
    if not found.comparisons:
        return []
    statement = "SELECT document FROM comparisons WHERE case_id = ? AND id <= ? ORDER BY id"
    texts = store.read(lambda c: c.execute(statement, [found.id, found.newest_comparison]), [])
    return [decode_comparison(text, with_blocks=False) for (text,) in texts]
