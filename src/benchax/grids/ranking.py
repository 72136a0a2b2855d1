"""Which function of a grid is the fastest: on each data point, and over all.

A place has who finished and gave the result of the reference. Functions whose intervals overlap share a place: cells
are measured one after the other, so that a difference within their intervals may be the machine's. Pairs tell more
(`benchax compare`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import fmean
from typing import TYPE_CHECKING

from benchax.grids.plan import Label
from benchax.model import Absent, Summary

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


@dataclass(frozen=True)
class GridRanking:
    """Who is the fastest."""

    by_data: Mapping[Label, tuple[GridPlace, ...]]
    """Fastest first; empty where none has a place."""
    overall: tuple[GridPlace, ...]
    """The places of the functions that have a place on every data point that is in `compared`. Places are shared where
    two functions share one on each of them."""
    compared: tuple[Label, ...]
    """The data points on which any function has a place."""
    without: tuple[str, ...]
    """Functions without a place over all: they failed somewhere, or gave another result."""


def rank(g: GridResult) -> GridRanking:
    """Ranks the functions by their medians, those of the grid's `timer`."""
    by_data = {label: _rank_point(g, label) for label in g.data}
    compared = tuple(label for label, places in by_data.items() if places)
    ratios = {
        function: [place.ratio for label in compared for place in by_data[label] if place.function == function]
        for function in g.functions
    }
    means = {f: exp(fmean(map(log, found))) for f, found in ratios.items() if found and len(found) == len(compared)}
    ordered = sorted(means, key=lambda f: means[f])
    places: list[GridPlace] = []
    for i, function in enumerate(ordered):
        shares = i > 0 and all(_is_tie(by_data[label], ordered[i - 1], function) for label in compared)
        places.append(GridPlace(places[-1].place if shares else i + 1, function, means[function]))
    return GridRanking(by_data, tuple(places), compared, tuple(f for f in g.functions if f not in means))


def _rank_point(g: GridResult, label: Label) -> tuple[GridPlace, ...]:
    found = [(f, g.by_key[f, label].summary_by(g.timer)) for f in g.functions]
    valid = [(f, s) for f, s in found if s is not None and s.median_s > 0 and not is_wrong(g.by_key[f, label])]
    valid.sort(key=lambda each: each[1].median_s)
    places: list[GridPlace] = []
    leader: Summary | None = None
    for i, (function, summary) in enumerate(valid):
        if leader is None or not _overlap(leader, summary):
            leader, place = summary, i + 1
        else:
            place = places[-1].place
        places.append(GridPlace(place, function, summary.median_s / valid[0][1].median_s))
    return tuple(places)


def is_wrong(cell: Cell) -> bool:
    """Did it give another result than the reference in any trial?"""
    return not isinstance(cell.agreement, Absent) and not all(each.agrees for each in cell.agreement)


def _overlap(a: Summary, b: Summary) -> bool:
    """Without an interval nothing is known of how far a median may be off."""
    if a.high_s is None or b.low_s is None:
        return True
    return b.low_s <= a.high_s


def _is_tie(places: Sequence[GridPlace], a: str, b: str) -> bool:
    by_function = {each.function: each.place for each in places}
    return by_function[a] == by_function[b]
