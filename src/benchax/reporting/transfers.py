"""Shows what went between host and device without being asked for, line by line."""

from __future__ import annotations

from benchax.reporting.document import Block, Document, Heading, Table, list_remarks, tabulate
from benchax.reporting.tables import LINE, one_line
from benchax.results.transfers import Direction, ObservedTransfer, Transfers
from benchax.units import plural, seconds, size

LIMIT = 20
"""Lines of a table: with thousands of lines, the first would scroll out of sight."""
DIRECTIONS: tuple[Direction, ...] = ("host to device", "device to host")


def document(found: Transfers) -> Document:
    blocks: list[Block] = []
    for direction in DIRECTIONS:
        listed = found.of(direction)
        blocks.append(Heading(heading(found, direction)))
        if listed:
            blocks.append(grid(listed))
    return Document((*blocks, *list_remarks(found.remarks)))


def heading(found: Transfers, direction: Direction) -> str:
    """host to device, not asked for: 20 transfers, 80 B"""
    count = found.count(direction)
    if count is None:
        return f"{direction}: not seen"
    if not count:
        return f"{direction}, not asked for: none"
    moved = size(sum(t.size_bytes for t in found.of(direction)))
    return f"{direction}, not asked for: {plural(count, 'transfer')}, {moved}"


def grid(listed: list[ObservedTransfer]) -> Table:
    """Omits the column of times if no time is known."""
    has_time = any(t.elapsed_s is not None for t in listed)
    shown = listed[:LIMIT]
    lines = [
        (
            str(t.count),
            size(t.size_bytes),
            *([_seconds(t)] if has_time else []),
            f"{_truncate(t.where or 'a line that cannot be seen')}: {_truncate(t.by)}, {_truncate(t.what)}",
        )
        for t in shown
    ]
    more = f"and {len(listed) - LIMIT} more that moved less" if len(listed) > LIMIT else ""
    return tabulate(("times", "bytes", *(["waited"] if has_time else []), LINE), lines, note=more)


def _seconds(t: ObservedTransfer) -> str:
    return "" if t.elapsed_s is None else seconds(t.elapsed_s)


def _truncate(text: str) -> str:
    """A name on one line; the end of a long path says more than its beginning."""
    line = one_line(text)
    return line if len(line) <= 80 else f"…{line[-79:]}"
