"""Comparisons in the store: the history of ratios, which may be put side by side where times may not.

A series of them is of one case, one metric and one baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from benchax.codec import decode_comparison, decode_params, encode_comparison
from benchax.model import CaseId, Comparison, Metric
from benchax.store.database import DatabaseStore
from benchax.store.records import case_id_of
from benchax.store.schema import Connection, case_columns, case_key


def append(store: DatabaseStore, found: Sequence[Comparison]) -> None:
    """All or none; durable when this returns. Raises `StoreError`."""

    def work(connection: Connection) -> None:
        for c in found:
            values = {"metric": c.metric, "baseline": c.baseline.label, "document": encode_comparison(c)}
            case_id = case_id_of(connection, case_columns(c.case))
            connection.insert("comparisons", [{"case_id": case_id} | values])

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
