"""The history of one case: its ratios to one baseline, commit by commit, and the places where their level changes.

Ratios can be compared even if times cannot: each was taken with the baseline's program in the same processes. Still,
only ratios of one machine, one JAX and one baseline are judged together. Each such group is a separate series, even if
comparisons of two machines alternate. No change point spans two series.

Compilers count bytes and operations without noise: in counts, every difference is a change.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean
from typing import Any

from benchax.model import METRICS, CaseId, Comparison, Environment, Metric
from benchax.printable import list_some
from benchax.renderers import SelfRendering
from benchax.stats import changepoints
from benchax.units import size

LEAST_CHANGE = 0.03
"""Smaller changes have no name, however steady they are: buffers and executables alone may make as much."""
LEAST_JUMP = 0.05
MOST_DIFFERENCES = 2
"""Spelt out where machines differ."""


@dataclass(frozen=True)
class Break:
    """The comparison at this place was not made where, or with what, the one before it was."""

    at: int
    why: str


@dataclass(frozen=True)
class Stretch:
    """Comparisons of one group between two changes of its level."""

    places: tuple[int, ...]
    level: float
    """The geometric mean of the ratios; for counted metrics, the count."""


@dataclass(frozen=True)
class Change:
    """The level differs from the comparison at this place on."""

    at: int
    last: int
    """The place of the comparison before it in its group: the change came after that one's commit."""
    before: float
    """Levels, as in `Stretch`."""
    after: float
    p: float | None
    """The p of the t test (`stats.changepoints`); None for what is counted."""

    @property
    def factor(self) -> float | None:
        return self.after / self.before if self.before else None


@dataclass(frozen=True)
class History(SelfRendering):
    """Comparisons of one case with one baseline by one metric, oldest first, and what they say together. Places are
    indices of `points`."""

    case: CaseId
    metric: Metric
    baseline: str
    points: tuple[Comparison, ...]
    """Without their samples."""
    breaks: tuple[Break, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    """Every point that has a value is in one of them."""
    changes: tuple[Change, ...] = ()
    jump: float | None = None
    """The share by which the newest point is above the median of the earlier points, if that is unusual. It is a first
    sign, because a change point needs two points."""

    @property
    def is_counted(self) -> bool:
        return is_counted(self.metric)

    @cached_property
    def values(self) -> tuple[float | None, ...]:
        """Ratios, or counts; None if there is no value."""
        return tuple(map(value, self.points))


def is_counted(metric: Metric) -> bool:
    return METRICS[metric] != "s"


def value(c: Comparison) -> float | None:
    """Returns the value that a history shows: the ratio of times, or the count itself (0 bytes have no ratio)."""
    if c.method == "same program":  # not timed, since nothing could differ
        return 1.0
    return c.candidate_value if is_counted(c.metric) else c.ratio


def history(comparisons: Sequence[Comparison]) -> History:
    """The history that comparisons of one case with one baseline by one metric make: at least one, oldest first."""
    newest = comparisons[-1]
    groups, stretches, changes = _groups(comparisons), list[Stretch](), list[Change]()
    for places in groups:
        values = [v for i in places if (v := value(comparisons[i])) is not None]
        cuts = _cuts(values, newest.metric)
        found = [
            Stretch(tuple(places[a:b]), _level(values[a:b], newest.metric))
            for a, b in pairwise([0, *cuts, len(values)])
        ]
        stretches += found
        changes += [
            Change(after.places[0], before.places[-1], before.level, after.level, p)
            for (before, after), p in zip(pairwise(found), cuts.values(), strict=True)
        ]
    return History(
        newest.case,
        newest.metric,
        newest.baseline.label,
        tuple(replace(c, blocks=()) if c.blocks else c for c in comparisons),
        tuple(_breaks(comparisons, groups)),
        tuple(sorted(stretches, key=lambda stretch: stretch.places)),
        tuple(sorted(changes, key=lambda change: change.at)),
        _jump(comparisons, stretches),
    )


# ---- groups -----------------------------------------------------------------------------------------------------


def _groups(comparisons: Sequence[Comparison]) -> list[tuple[int, ...]]:
    """Places of comparisons that may be judged together, in the order of their first ones."""
    groups: dict[Any, list[int]] = {}
    for i, c in enumerate(comparisons):
        if value(c) is not None:
            # An unknown place cannot be known to be the same as another one.
            where = i if c.environment is None else c.environment.fingerprint
            groups.setdefault((where, c.baseline.jax, c.candidate.jax, c.method, _identity(c)), []).append(i)
    return [tuple(places) for places in groups.values()]


def _identity(c: Comparison) -> object:
    """Identifies the run behind a baseline's name: names can be given to other runs, and branches move."""
    b = c.baseline
    return b.commit if b.commit and not b.is_dirty else b.program or b.commit or b.label


def _breaks(comparisons: Sequence[Comparison], groups: Iterable[tuple[int, ...]]) -> Iterable[Break]:
    group_of = {place: group for group, places in enumerate(groups) for place in places}
    for one, other in pairwise(sorted(group_of)):
        if group_of[one] != group_of[other]:
            yield Break(other, "; ".join(_differences(comparisons[one], comparisons[other])))


def _differences(one: Comparison, other: Comparison) -> Iterable[str]:
    if one.environment is None or other.environment is None:
        yield "where one of the two ran is not known"
        return
    here = [then(name, a, b) for name, a, b in _unlike(one.environment, other.environment)]
    yield from list_some(here, MOST_DIFFERENCES)
    sides = ((one.baseline.jax, other.baseline.jax), (one.candidate.jax, other.candidate.jax))
    if not here and (jax := next(((a, b) for a, b in sides if a != b), None)):
        yield then("jax", *jax)
    if _identity(one) != _identity(other):
        yield then(f"baseline {other.baseline.label}", str(_identity(one))[:8], str(_identity(other))[:8])
    if one.method != other.method:
        yield then("compared in", one.method, other.method)


def then(name: str, one: object, other: object) -> str:
    """host a, then b"""
    return f"{name} {'unknown' if one is None else one}, then {'unknown' if other is None else other}"


def _unlike(one: Environment, other: Environment) -> Iterable[tuple[str, object, object]]:
    """The fields that are part of the fingerprint and differ."""
    for f in dataclasses.fields(Environment):
        a: Any = getattr(one, f.name)
        b: Any = getattr(other, f.name)
        # Use the fingerprint itself: a second list of its fields would diverge from it some day.
        if replace(one, **{f.name: b}).fingerprint == one.fingerprint:
            continue
        if f.name == "memory_bytes":
            # Systems with as much memory can differ in a few pages, and then three digits are the same.
            digits = 3 if a is None or b is None or size(a) != size(b) else 9
            yield "memory", a and size(a, digits), b and size(b, digits)
        elif f.name in ("config", "flags"):
            yield from ((key, a.get(key), b.get(key)) for key in sorted({*a, *b}) if a.get(key) != b.get(key))
        else:
            yield f.name.replace("_", " "), a, b


# ---- levels -----------------------------------------------------------------------------------------------------


def _cuts(values: Sequence[float], metric: Metric) -> dict[int, float | None]:
    """Where the level changes, with the p of each change; None for what is counted."""
    if is_counted(metric):
        return {i: None for i, (one, other) in enumerate(pairwise(values), 1) if one != other}
    # Logarithms have similar noise at every level, and "twice as fast" is as far from 1 as "half as fast".
    logs = [math.log(ratio) for ratio in values]
    return {c.index: c.p for c in changepoints.change_points(logs, least_change=math.log(1 + LEAST_CHANGE))}


def _level(values: Sequence[float], metric: Metric) -> float:
    return values[0] if is_counted(metric) else math.exp(fmean(map(math.log, values)))


def _jump(comparisons: Sequence[Comparison], stretches: Iterable[Stretch]) -> float | None:
    """How far the newest comparison is above the others since the last change."""
    places = next((stretch.places for stretch in stretches if stretch.places[-1] == len(comparisons) - 1), ())
    if not places or is_counted(comparisons[0].metric):
        return None
    logs = [math.log(ratio) for i in places if (ratio := comparisons[i].ratio)]
    above = changepoints.jump(logs, math.log(1 + LEAST_JUMP))
    return None if above is None else math.expm1(above)
