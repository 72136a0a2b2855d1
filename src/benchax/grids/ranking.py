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

from benchax.comparing.ranking import Rank, share_places
from benchax.grids.plan import Label
from benchax.model import Absent, Estimate

if TYPE_CHECKING:
    from benchax.grids.result import Cell, GridResult


@dataclass(frozen=True)
class GridRanking:
    """Who is the fastest."""

    by_data: Mapping[Label, tuple[Rank, ...]]
    """Fastest first; empty if no function has a place."""
    overall: tuple[Rank, ...]
    """The places of the functions that have a place on every data point that is in `compared`."""
    compared: tuple[Label, ...]
    """The data points on which any function has a place."""
    without: tuple[str, ...]
    """Functions without a place over all: they failed somewhere, or gave another result."""


def rank(g: GridResult) -> GridRanking:
    """Ranks the functions by their medians, with the grid's `timer`."""
    by_data = {label: _rank_point(g, label) for label in g.data}
    compared = tuple(label for label, places in by_data.items() if places)
    found = {f: [p for label in compared for p in by_data[label] if p.label == f] for f in g.functions}
    overall = _ranks([(f, None, _mean(ranks)) for f, ranks in found.items() if ranks and len(ranks) == len(compared)])
    ranked = {rank.label for rank in overall}
    return GridRanking(by_data, overall, compared, tuple(f for f in g.functions if f not in ranked))


def _rank_point(g: GridResult, label: Label) -> tuple[Rank, ...]:
    if len(environments(g, label)) > 1:
        return ()
    cells = [(f, g.by_key[f, label]) for f in g.functions]
    found = [(f, s) for f, cell in cells if (s := cell.summary_by(g.timer)) is not None and not is_wrong(cell)]
    valid = [(f, s) for f, s in found if s.median_s > 0]
    best_s = min((s.median_s for _, s in valid), default=1.0)
    times = [(f, Estimate(s.median_s, s.low_s, s.high_s)) for f, s in valid]
    return _ranks([(f, time.value, time.map(lambda seconds: seconds / best_s)) for f, time in times])


def environments(g: GridResult, label: Label) -> set[str]:
    """The fingerprints of where this data point was measured: of several, times are not put side by side. There are
    several only where a node was lost, or a grid was gone on with elsewhere."""
    cells = (g.by_key[f, label] for f in g.functions)
    return {cell.measurement.environment.fingerprint for cell in cells if cell.status == "ok"}


def _mean(ranks: Sequence[Rank]) -> Estimate:
    """Over data points."""
    lows, highs = [rank.low for rank in ranks], [rank.high for rank in ranks]
    middle = exp(fmean(log(rank.ratio) for rank in ranks if rank.ratio))
    return Estimate(middle, _geometric_mean(lows), _geometric_mean(highs))


def _geometric_mean(values: Sequence[float | None]) -> float | None:
    """None if one of them is not known, or not above zero, as the lower end of a net time may be."""
    known = [value for value in values if value is not None and value > 0]
    return exp(fmean(map(log, known))) if len(known) == len(values) else None


def _ranks(found: Sequence[tuple[str, float | None, Estimate]]) -> tuple[Rank, ...]:
    """Ranks (label, seconds, ratio): those that overlap with the first of a place share it."""
    order = sorted(found, key=lambda each: each[2].value)
    places = share_places(order, lambda first, one: not _overlap(first[2], one[2]))
    return tuple(
        Rank(place, label, time_s, ratio.value, ratio.low, ratio.high)
        for place, (label, time_s, ratio) in zip(places, order, strict=True)
    )


def is_wrong(cell: Cell) -> bool:
    """Did it give another result than the reference in any trial?"""
    return not isinstance(cell.agreement, Absent) and not all(each.agrees for each in cell.agreement)


def _overlap(a: Estimate, b: Estimate) -> bool:
    """Without an interval nothing is known of how far a median may be off."""
    if a.high is None or b.low is None:
        return True
    return b.low <= a.high
