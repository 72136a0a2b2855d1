"""The work of a program by line and by named scope, and how long it takes at the rates of this machine.

Estimated from the program's text: the longer of the times of bytes and of FLOPs. A kernel reads, computes and writes at
once, so its FLOPs stand beside its own bytes here, at its own line, whichever lines they come from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from benchax.reporting.document import Table, TableColumn
from benchax.reporting.inspection_tables import Line, build_table, near
from benchax.reporting.roofline_words import BOUND
from benchax.reporting.tables import LINE_NAMES, SCOPE_NAMES
from benchax.results.inspection import Inspection, LineWork
from benchax.results.roofline import Roofline
from benchax.source_files import NOT_YOURS
from benchax.units import count, percent, rate, seconds, size


@dataclass
class _Sum:
    """Of all that has one name."""

    flops: float = 0.0
    transcendentals: float = 0.0
    moved_bytes: float = 0.0
    kernel_flops: float | None = 0.0

    def add(self, one: LineWork) -> None:
        self.flops += one.flops
        self.transcendentals += one.transcendentals
        self.moved_bytes += one.bytes_accessed
        known = self.kernel_flops is not None and one.kernel_flops is not None
        self.kernel_flops = (self.kernel_flops or 0.0) + (one.kernel_flops or 0.0) if known else None


def lines(found: Inspection, roof: Roofline | None = None) -> Table | None:
    """Work by line, and how much of the memory at its peak is of values made there; a share of operations only where
    the sum of them has no hole."""
    held: dict[str, int] = {}
    for value in found.peak.values if found.peak else ():
        held[near(value.source or NOT_YOURS)] = held.get(near(value.source or NOT_YOURS), 0) + value.size_bytes
    return _by(found, lambda one: one.source or NOT_YOURS, LINE_NAMES, roof, held)


def scopes(found: Inspection, roof: Roofline | None = None) -> Table | None:
    """None where no part of it is in a named scope."""
    if not any(one.scope for one in found.lines or ()):
        return None
    return _by(found, lambda one: one.scope or "(none)", SCOPE_NAMES, roof)


def _by(
    found: Inspection,
    name: Callable[[LineWork], str],
    column: TableColumn,
    roof: Roofline | None,
    held: Mapping[str, int] | None = None,
) -> Table | None:
    sums = {place: _Sum() for place in held or ()}
    for one in found.lines or ():
        sums.setdefault(near(name(one)), _Sum()).add(one)
    whole = found.counts.flops if found.counts else None
    listed: list[Line] = [
        (
            place,
            count(work.flops, "FLOP"),
            percent(work.flops / whole) if whole else "",
            count(work.transcendentals),
            size(work.moved_bytes),
            *_beside_roofline(work, roof),
            _size_or_nothing(held, place),
        )
        for place, work in sorted(sums.items(), key=lambda pair: (-pair[1].flops, -pair[1].moved_bytes))
    ]
    columns = (column, "operations", "share", "transcendentals", "bytes", "least time", "bound by", "at the peak")
    return build_table(columns, listed, _describe(roof) if listed else "")


def _beside_roofline(work: _Sum, roof: Roofline | None) -> tuple[str, str]:
    """(the longer of bytes and FLOPs at the rates of the machine, which one it is); empty where one is not known, or
    all of it is fused into kernels of other lines."""
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s or work.kernel_flops is None:
        return "", ""
    bytes_s, flops_s = work.moved_bytes / roof.bytes_per_s, work.kernel_flops / roof.flops_per_s
    least_s = max(bytes_s, flops_s)
    return (seconds(least_s), BOUND[bytes_s >= flops_s]) if least_s else ("", "")


def _describe(roof: Roofline | None) -> str:
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s:
        return ""  # the roofline of the whole program says why
    rates = f"{rate(roof.bytes_per_s, 'B')} and {rate(roof.flops_per_s, 'FLOP')}"
    counted = ", of what could be counted" if roof.is_at_least else ""
    return f"least time: estimated; the longer of the bytes and of the FLOPs of their kernels, at {rates}{counted}"


def _size_or_nothing(sizes: Mapping[str, int] | None, name: str) -> str:
    return size(sizes[name]) if sizes and name in sizes else ""
