"""Which series of comparisons there are: by case, metric and baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlalchemy import func, select

from benchax.codec import decode_params
from benchax.model import CaseId, Metric
from benchax.store.database import DatabaseStore
from benchax.store.schema import cases, comparisons


@dataclass(frozen=True)
class Series:
    """Comparisons of one case with one baseline by one metric."""

    case: CaseId
    metric: Metric
    baseline: str
    count: int


def listed(store: DatabaseStore) -> list[Series]:
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
