"""Ranks the functions of a grid: on each data point, and over all.

A function has a place if it finished and gave the result of the reference. Functions whose intervals overlap share a
place. Cells are measured one after the other, so the machine can cause a difference within their intervals. Pairs show
smaller differences (`benchax compare`).

The overall ranking uses the geometric mean of a function's time as a multiple of the fastest one on each data point. So
all data points count equally. The ends of its interval are the geometric means of the ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

from benchax.grids.plan import Label
from benchax.model import Absent

if TYPE_CHECKING:
    from benchax.grids.result import Cell, GridResult


@dataclass(frozen=True)
class GridPlace:
    """A function among those that have a place."""

    place: int
    """From 1 on; those that are not told apart share one."""
    function: str
    ratio: float
    """Its median over that of the fastest; over all data points the geometric mean of these."""
    low: float | None
    """The ends of the ratio's interval: the ends for its own median, over the median of the fastest. None if a cell had
    too few readings."""
    high: float | None


@dataclass(frozen=True)
class GridRanking:
    """Who is the fastest."""

    by_data: Mapping[Label, tuple[GridPlace, ...]]
    """Fastest first; empty if no function has a place."""
    overall: tuple[GridPlace, ...]
    """The places of the functions that have a place on every data point that is in `compared`."""
    compared: tuple[Label, ...]
    """The data points on which any function has a place."""
    without: tuple[str, ...]
    """Functions without a place over all: they failed somewhere, or gave another result."""


def rank(g: GridResult) -> GridRanking:
    """Ranks the functions by their medians, with the grid's `timer`."""
    by_data = {label: _rank_point(g, label) for label in g.data}
    compared = tuple(label for label, places in by_data.items() if places)
    found = {f: [p for label in compared for p in by_data[label] if p.function == f] for f in g.functions}
    means = [_mean(f, places) for f, places in found.items() if places and len(places) == len(compared)]
    overall = _share_places(means)
    ranked = {place.function for place in overall}
    return GridRanking(by_data, overall, compared, tuple(f for f in g.functions if f not in ranked))


def _rank_point(g: GridResult, label: Label) -> tuple[GridPlace, ...]:
    if len(environments(g, label)) > 1:
        return ()
    cells = [(f, g.by_key[f, label]) for f in g.functions]
    found = [(f, s) for f, cell in cells if (s := cell.summary_by(g.timer)) is not None and not is_wrong(cell)]
    valid = [(f, s) for f, s in found if s.median_s > 0]
    best_s = min((s.median_s for _, s in valid), default=1.0)
    ratios = [
        GridPlace(0, f, s.median_s / best_s, s.low_s and s.low_s / best_s, s.high_s and s.high_s / best_s)
        for f, s in valid
    ]
    return _share_places(ratios)


def environments(g: GridResult, label: Label) -> set[str]:
    """The fingerprints of where this data point was measured: of several, times are not put side by side. There are
    several only where a node was lost, or a grid was gone on with elsewhere."""
    cells = (g.by_key[f, label] for f in g.functions)
    return {cell.measurement.environment.fingerprint for cell in cells if cell.status == "ok"}


def _mean(function: str, places: Sequence[GridPlace]) -> GridPlace:
    """Over data points; without a place yet."""
    low, high = _geometric_mean([p.low for p in places]), _geometric_mean([p.high for p in places])
    return GridPlace(0, function, exp(fmean(log(p.ratio) for p in places)), low, high)


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    """None if one of them is not known, or not above zero, as the lower end of a net time may be."""
    known = [value for value in values if value is not None and value > 0]
    return exp(fmean(map(log, known))) if len(known) == len(values) else None


def _share_places(ratios: Sequence[GridPlace]) -> tuple[GridPlace, ...]:
    """In their order: who overlaps with the first of a place shares it."""
    places: list[GridPlace] = []
    leader: GridPlace | None = None
    for i, each in enumerate(sorted(ratios, key=lambda each: each.ratio)):
        if leader is None or not _overlap(leader, each):
            leader, place = each, i + 1
        else:
            place = places[-1].place
        places.append(GridPlace(place, each.function, each.ratio, each.low, each.high))
    return tuple(places)


def is_wrong(cell: Cell) -> bool:
    """Did it give another result than the reference in any trial?"""
    return not isinstance(cell.agreement, Absent) and not all(each.agrees for each in cell.agreement)


def _overlap(a: GridPlace, b: GridPlace) -> bool:
    """Without an interval nothing is known of how far a median may be off."""
    if a.high is None or b.low is None:
        return True
    return b.low <= a.high
