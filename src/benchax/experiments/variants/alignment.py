"""Sizes around one size: one less, one more, padded to a multiple of 128, padded to a power of two.

Hardware runs some sizes faster than others; this variant measures which sizes, and by how much. Each size is paired
with the size in question, and its time is divided by the number of useful entries. With padding, these are the entries
of the size in question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotMeasured, UsageError
from benchax.experiments.functions import plain
from benchax.experiments.lab import Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.parsing import CommonAxis, arguments, array_leaves, axes, halves, sizes, value_of
from benchax.experiments.sweeping import LOOKS, Half, Reading, Resized, failure, ratio, reading
from benchax.experiments.variant import Measure
from benchax.experiments.variants.shapes import bucket
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Comparison
from benchax.results.experiment import Curve, Point
from benchax.units import seconds

LANES = 128
"""The multiple: a TPU's vectors have as many lanes; tiles of GPUs and vectors of CPUs divide it."""


@dataclass(frozen=True)
class Alignment:
    name: str = "alignment"
    title: str = "sizes n-1, n, n+1, padded to 128 and to a power of two (alignment=x.0=1000)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told which axes: alignment=x.0+w.0, or with a size: alignment=x.0=1000")
        text, listed = halves(self.name, given)
        unjitted = plain(case, seed)
        inputs = make_inputs(unjitted, seed)
        over = axes(self.name, text or _first(unjitted, inputs), unjitted, inputs)
        size = _size(self.name, listed, over, inputs)
        return _AlignmentSweep(unjitted, seed, over, text, size).measure


def _first(case: Case, inputs: Inputs) -> str:
    return next(iter(arguments(case, inputs)), "")


def _size(name: str, listed: Any, over: tuple[CommonAxis, ...], inputs: Inputs) -> int:
    if listed is None:
        return array_leaves(value_of(inputs, over[0].argument))[0].shape[over[0].axis]
    found = sizes(name, listed)
    if len(found) != 1:
        raise UsageError(f"{name} is given {listed!r}", "one size; those around it are added")
    return found[0]


def around(size: int) -> dict[int, int]:
    """Each size, and how many of its entries are of use; the one in question first."""
    nearby = {size: size} | ({size - 1: size - 1} if size > 1 else {}) | {size + 1: size + 1}
    return nearby | {padded: size for padded in targets(size) if padded not in nearby}


def targets(size: int) -> tuple[int, ...]:
    """Returns the sizes to pad to."""
    return tuple(sorted({-(-size // LANES) * LANES, bucket(size)} - {size}))


@dataclass(frozen=True)
class _AlignmentSweep:
    case: Case
    seed: int
    axes: tuple[CommonAxis, ...]
    text: str
    size: int

    def measure(self, lab: Lab) -> tuple[Curve]:
        useful = around(self.size)
        cases = {size: self._case(size) for size in useful}
        others = [size for size in useful if size != self.size]
        pairs = [Pair(str(size), str(self.size), cases[self.size], str(size), cases[size]) for size in others]
        found = lab.time_pairs(pairs, LOOKS)
        beside: list[tuple[Comparison | None, Half]] = [(c, "baseline") for c in found.values()]
        own = reading(*beside)
        listed = [self._point(size, useful[size], found.get(str(size)), own) for size in sorted(useful)]
        title = f"time around {self.text}={self.size}"
        return (Curve("alignment", title, self.text or "size", tuple(listed), sentence=self._sentence(found)),)

    def _case(self, size: int) -> Case:
        """Padded ones hold zeros behind the size in question, as they would in use."""
        real = min(size, self.size) if around(self.size)[size] == self.size else size
        return replace(self.case, inputs=Resized(self.case, self.seed, self.axes, real, size))

    def _point(self, size: int, useful: int, c: Comparison | None, own: Reading | None) -> Point:
        taken = own if size == self.size else reading((c, "candidate"))
        if taken is None:
            return Point(size, str(size), None, facts=(("not measured:", failure(c)),))
        each = seconds(taken[0] / useful)
        if c is not None and c.ratio:
            each += f", {_per_entry(c, useful, self.size)} of that at {self.size}"
        label = f"{size} (padded)" if useful != size else str(size)
        return Point(size, label, *taken, facts=(("per useful entry:", each),))

    def _sentence(self, found: Mapping[str, Comparison]) -> str:
        """Describes the effect of padding, which is the same work for the user, as the paired comparisons show it."""
        pairs = ((size, found.get(str(size))) for size in targets(self.size))
        said = [f"padded to {size}: {c.verdict}" for size, c in pairs if c and not c.failure]
        return f"beside {self.size}, {'; '.join(said)}; padding itself is not in the times" if said else ""


def _per_entry(c: Comparison, useful: int, size: int) -> str:
    """The paired ratio of the calls, for each entry that is of use."""
    share = size / useful
    return ratio((c.ratio or 0.0) * share, c.low and c.low * share, c.high and c.high * share)


MEMBERS = (Alignment(),)
