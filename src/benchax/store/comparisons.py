"""Comparisons in the store: the history of ratios, which may be put side by side where times may not.

A series of them is of one case, one metric and one baseline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from sqlalchemy import Connection, func, insert, select

from benchax.codec import decode_comparison, decode_params, encode_comparison
from benchax.model import CaseId, Comparison, Metric
from benchax.store.database import DatabaseStore
from benchax.store.records import case_id_of
from benchax.store.schema import case_columns, case_key, cases, comparisons


def append(store: DatabaseStore, found: Sequence[Comparison]) -> None:
    """All or none; durable when this returns. Raises `StoreError`."""

    def work(connection: Connection) -> None:
        for c in found:
            values = {"metric": c.metric, "baseline": c.baseline.label, "document": encode_comparison(c)}
            case_id = case_id_of(connection, case_columns(c.case))
            connection.execute(insert(comparisons).values(case_id=case_id, **values))

    store.write(work)


def history(
    store: DatabaseStore, case: CaseId, metric: Metric = "run", baseline: str | None = None
) -> list[Comparison]:
    """Comparisons of one case, oldest first; with one baseline, or with all."""
    statement = (
        select(comparisons.c.document)
        .join(cases, cases.c.id == comparisons.c.case_id)
        .where(cases.c.key == case_key(case), comparisons.c.metric == metric)
        .order_by(comparisons.c.id)
    )
    if baseline is not None:
        statement = statement.where(comparisons.c.baseline == baseline)
    return store.read(lambda c: [decode_comparison(text) for text in c.execute(statement).scalars()], [])


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
        select(
            cases.c.name, cases.c.params, cases.c.variant, cases.c.tag,
            comparisons.c.metric, comparisons.c.baseline, func.count(),
        )
        .join_from(comparisons, cases, cases.c.id == comparisons.c.case_id)
        .group_by(cases.c.id, comparisons.c.metric, comparisons.c.baseline)
        .order_by(func.max(comparisons.c.id))
    )  # fmt: skip
    rows = store.read(lambda c: c.execute(statement).all(), [])
    return [
        Series(CaseId(name, decode_params(params), variant, tag), cast("Metric", metric), baseline, count)
        for name, params, variant, tag, metric, baseline, count in rows
    ]
