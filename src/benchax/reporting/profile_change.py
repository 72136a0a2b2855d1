"""Two profiles in one table: what takes longer, what takes less, what is new and what is gone."""

from __future__ import annotations

from benchax.reporting.document import Document, Heading, Table, TableColumn, list_remarks, tabulate
from benchax.reporting.tables import WHERE, truncate
from benchax.results.profile import OpChange, ProfileChange
from benchax.source_files import without_folders
from benchax.units import count, seconds

TOP = 20
WIDTH, WIDE = 40, 60


def document(change: ProfileChange) -> Document:
    below = f"self time per {change.per}, largest change first"
    table = (grid(change),) if change.ops else ()
    return Document((Heading(f"{change.before} → {change.after}", 1, (below,)), *table, *list_remarks(change.remarks)))


def grid(change: ProfileChange) -> Table:
    """One line for each origin, the largest change first, in either direction."""
    largest = sorted(change.ops, key=lambda op: -abs(op.more_s))[:TOP]
    operation = TableColumn("operation", "names")
    return tabulate((operation, "before", "after", "more", "calls", WHERE), map(_line, largest))


def _line(op: OpChange) -> tuple[str, ...]:
    before = "not there" if not op.calls_before else _time(op.before_s)
    after = "not there" if not op.calls_after else _time(op.after_s)
    is_known = op.calls_before and op.calls_after and op.before_s is not None and op.after_s is not None
    more = f"{'+' if op.more_s >= 0 else '-'}{seconds(abs(op.more_s))}" if is_known else ""
    calls = f"{count(op.calls_before)} → {count(op.calls_after)}"
    line = without_folders(op.source)
    scope = (op.scope or "").partition("/")[2] or op.category
    shape = f"{op.shape_before} → {op.shape}" if op.shape_before else op.shape or ""
    where = " ".join(part for part in (line, shape, scope) if part)
    return truncate(op.name, WIDTH), before, after, more, calls, truncate(where, WIDE)


def _time(value: float | None) -> str:
    return "not known" if value is None else seconds(value)
