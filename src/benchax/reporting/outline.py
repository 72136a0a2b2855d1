"""Boxes inside one another with numbers on them, before anybody draws them: folded at first, unfolded where one looks.

A page lets its reader unfold and search them (`pages/assets/outlines.js`); every other renderer shows the outermost
ones as a table (`outline_table.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from benchax.reporting.chart import Quantity


@dataclass(frozen=True)
class OutlineColumn:
    name: str
    quantity: Quantity = ""


@dataclass(frozen=True)
class OutlineEntry:
    """A box."""

    name: str
    kind: str = ""
    """What it is, in a word: scope, loop, dot."""
    values: tuple[float | None, ...] = ()
    """One for each column. None: not known; 0 is not written."""
    detail: str = ""
    source: str = ""
    """file.py:12"""
    parts: tuple[OutlineEntry, ...] = ()
    key: int | None = None
    """By which others name it in `reads`."""
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outline:
    caption: str
    columns: tuple[OutlineColumn, ...]
    entries: tuple[OutlineEntry, ...]
    note: str = ""

    @property
    def totals(self) -> tuple[float, ...]:
        """Returns the totals of the known values."""
        return tuple(sum(entry.values[i] or 0 for entry in self.entries) for i in range(len(self.columns)))
