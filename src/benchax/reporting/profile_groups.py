"""A profile by the user's line and by named scope: time, share, and how fast the work was done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from benchax.reporting.document import Table, TableColumn, tabulate
from benchax.reporting.tables import truncate
from benchax.results.profile import Op, Profile
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import count, percent, rate, seconds

LONGEST_NAME, MOST_ROWS = 44, 8
"""Without `details`."""


def shorten_path(source: str | None, details: bool) -> str:
    """The file without its folders, and the line; with `details` all of it."""
    return source or "" if details else without_folders(source)


def by_line(p: Profile, details: bool = False) -> Table | None:
    """Device time by the user's line; None where the operations say it already, one line for each."""
    groups = _group(p.ops, lambda op: shorten_path(op.source, details))
    if not any(groups) or len(groups) == len(p.ops):
        return None
    return _tabulate(groups, TableColumn("line", "names"), NOT_YOURS, details)


def by_scope(p: Profile, details: bool = False) -> Table | None:
    """Device time by named scope; None where nothing has one."""
    groups = _group(p.ops, lambda op: op.named_scope)
    if not any(groups):
        return None
    return _tabulate(groups, TableColumn("scope", "names"), "(none)", details)


def _group(ops: Iterable[Op], name: Callable[[Op], str]) -> dict[str, list[Op]]:
    """Most time first."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        found.setdefault(name(op), []).append(op)
    return dict(sorted(found.items(), key=lambda pair: -sum(op.self_s for op in pair[1])))


def _tabulate(groups: dict[str, list[Op]], column: TableColumn, nameless: str, details: bool) -> Table:
    rows = [
        (
            truncate(name, None if details else LONGEST_NAME) or nameless,
            seconds(sum(op.self_s for op in ops)),
            percent(sum(op.share for op in ops)),
            _per_second([op.flops for op in ops], ops, "FLOP"),
            _per_second([op.bytes_accessed for op in ops], ops, "B"),
            count(len(ops)),
        )
        for name, ops in list(groups.items())[: None if details else MOST_ROWS]
    ]
    rates = ""
    if any(op.flops is not None for ops in groups.values() for op in ops):
        rates = "; exp, tanh and the like are no FLOP, and no rate is told of what has a custom call in it"
    columns = (column, "self time", "share", "FLOP/s", "bytes/s", "operations")
    note = f"operations that ran at once, on several threads, count in full{rates}"
    return tabulate(columns, rows, note=note).without_empty_columns()


def _per_second(amounts: Sequence[float | None], ops: Sequence[Op], unit: str) -> str:
    """Over the time of the operations; empty where the work of one of them is not known."""
    known, time_s = [amount for amount in amounts if amount is not None], sum(op.self_s for op in ops)
    return rate(sum(known) / time_s, unit) if len(known) == len(ops) and time_s else ""
