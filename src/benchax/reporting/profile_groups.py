"""A profile by the user's line and by named scope: time, share, and how fast the work was done on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from benchax.reporting.document import Block, Heading, Table, TableColumn, tabulate
from benchax.reporting.roofline_words import BOUND, NOT_MEASURED, describe_rates
from benchax.reporting.tables import LINE_NAMES, SCOPE_NAMES, truncate
from benchax.results.profile import Op, Profile
from benchax.results.roofline import Peaks, Roofline
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import count, percent, rate, seconds

LONGEST_NAME, MOST_ROWS = 44, 8
"""Without `details`."""


def shorten_path(source: str | None, details: bool) -> str:
    """The file without its folders, and the line; with `details` all of it."""
    return source or "" if details else without_folders(source)


def blocks(p: Profile, details: bool = False) -> list[Block]:
    """Returns the tables by line and by scope, if they add something. A note below the last one explains the
    numbers."""
    named = (("by line", by_line(p, details)), ("by scope", by_scope(p, details)))
    shown = [(title, table) for title, table in named if table is not None]
    last = len(shown) - 1
    noted = [(title, table if at == last else replace(table, note="")) for at, (title, table) in enumerate(shown)]
    return [block for title, table in noted for block in (Heading(title), table)]


def by_line(p: Profile, details: bool = False) -> Table | None:
    """Lists device time by the user's line. Returns None if the operations show the same, one line each, and no
    roofline is known to compare the lines with."""
    groups = _group(p.ops, lambda op: shorten_path(op.source, details))
    if not any(groups) or (len(groups) == len(p.ops) and p.peaks is None):
        return None
    return _tabulate(p, groups, LINE_NAMES, NOT_YOURS, details)


def by_scope(p: Profile, details: bool = False) -> Table | None:
    """Lists device time by named scope. Returns None if no operation has a scope."""
    groups = _group(p.ops, lambda op: op.named_scope)
    if not any(groups):
        return None
    return _tabulate(p, groups, SCOPE_NAMES, "(none)", details)


def _group(ops: Iterable[Op], name: Callable[[Op], str]) -> dict[str, list[Op]]:
    """Most time first."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        found.setdefault(name(op), []).append(op)
    return dict(sorted(found.items(), key=lambda pair: -sum(op.self_s for op in pair[1])))


def _tabulate(p: Profile, groups: dict[str, list[Op]], column: TableColumn, nameless: str, details: bool) -> Table:
    rows = [
        (
            truncate(name, None if details else LONGEST_NAME) or nameless,
            seconds(sum(op.self_s for op in ops)),
            percent(sum(op.share for op in ops)),
            _per_second([op.flops for op in ops], ops, "FLOP"),
            _per_second([op.bytes_accessed for op in ops], ops, "B"),
            *_beside_roofline(ops, p.peaks),
            count(len(ops)),
        )
        for name, ops in list(groups.items())[: None if details else MOST_ROWS]
    ]
    rates = ""
    if any(op.flops is not None for ops in groups.values() for op in ops):
        rates = "; exp, tanh and the like are no FLOP, and no rate is told of what has a custom call in it"
    columns = (column, "self time", "share", "FLOP/s", "bytes/s", "of roofline", "bound by", "operations")
    note = f"operations that ran at once, on several threads, count in full{rates}{_describe_roofline(p)}"
    return tabulate(columns, rows, note=note).without_empty_columns()


def _per_second(amounts: Sequence[float | None], ops: Sequence[Op], unit: str) -> str:
    """Over the time of the operations; empty where the work of one of them is not known."""
    known, time_s = [amount for amount in amounts if amount is not None], sum(op.self_s for op in ops)
    return rate(sum(known) / time_s, unit) if len(known) == len(ops) and time_s else ""


def _beside_roofline(ops: Sequence[Op], peaks: Peaks | None) -> tuple[str, str]:
    """(share of the roofline, what bounds it); empty where the work of one operation, or a rate, is not known.

    One operation runs behind the other, so the roofline of several is the sum of theirs.
    """
    roofs = [] if peaks is None else [roof for op in ops if (roof := op.roofline(peaks)) and roof.roof_s is not None]
    least_s, time_s = sum(roof.roof_s or 0.0 for roof in roofs), sum(op.self_s for op in ops)
    if len(roofs) < len(ops) or not least_s or not time_s:
        return "", ""
    # Where the end of a call is not in the trace, the time is too short.
    at_most = "at most " if any(op.total_s is None for op in ops) else ""
    return at_most + percent(least_s / time_s), BOUND[_of_memory_s(roofs) >= least_s / 2]


def _of_memory_s(roofs: Iterable[Roofline]) -> float:
    return sum(roof.roof_s or 0.0 for roof in roofs if roof.is_memory_bound)


def _describe_roofline(p: Profile) -> str:
    if p.peaks is None:
        why = NOT_MEASURED if p.fingerprint else "the trace does not say on which machine it was recorded"
        return f"; share of the roofline: not measured, because {why}"
    return f"; of roofline: the longer of bytes and FLOPs by the self time, at {describe_rates(p.peaks)}"
