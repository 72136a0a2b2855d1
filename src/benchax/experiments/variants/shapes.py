"""Inputs of many sizes: each with its own program, all padded to the largest, or padded to powers of two.

Whether padding is right is not assumed: the useful part of the outputs is compared with that of the exact size. A sum
over zeros is right, a mean is not, and needs a mask. Times are of the jitted call alone, on inputs that are padded
already; padding with zeros and cutting the outputs come on top.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments import variant_rows
from benchax.experiments.counting import Counted
from benchax.experiments.functions import plain
from benchax.experiments.lab import Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.parsing import CommonAxis, axes, halves, sizes
from benchax.experiments.sweeping import LOOKS, Resized, in_words, ladder, points
from benchax.experiments.variant import Measure
from benchax.measuring.inputs import make_inputs
from benchax.model import Absent, Comparison
from benchax.results.experiment import Curve, Facts, VariantRow
from benchax.units import percent, plural, seconds

EXACT, PADDED, BUCKETED = "exact", "padded", "bucketed"
TITLES = {
    EXACT: "each size with its own program",
    PADDED: "all padded to the largest",
    BUCKETED: "padded to powers of two",
}


@dataclass(frozen=True)
class ShapeBuckets:
    name: str = "shapes"
    title: str = "inputs of many sizes: exact, padded, in buckets (shapes=x.0=100,130,200)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told which axes, and which sizes: shapes=x.0=100,130,200")
        if not case.jit:
            raise NotAvailable("only a jitted function is compiled for each shape")
        text, listed = halves(self.name, given)
        chosen = sizes(self.name, listed)
        unjitted = plain(case, seed)
        over = axes(self.name, text, unjitted, make_inputs(unjitted, seed))
        return Sweep(unjitted, seed, over, text, chosen).measure


def bucket(size: int) -> int:
    """The power of two that holds it."""
    return 1 << (size - 1).bit_length()


@dataclass(frozen=True)
class Sweep:
    case: Case
    seed: int
    axes: tuple[CommonAxis, ...]
    text: str
    sizes: Sequence[int]

    def measure(self, lab: Lab) -> tuple[VariantRow | Curve, ...]:
        ways = {
            EXACT: [self._case(size, size) for size in self.sizes],
            PADDED: [self._case(size, max(self.sizes)) for size in self.sizes],
            BUCKETED: [self._case(size, bucket(size)) for size in self.sizes],
        }
        found = lab.count_programs(ways)
        labels = [f"{self.text}={size}" for size in self.sizes]
        times = lab.time_pairs([*ladder(labels, ways[EXACT]), *self._pairs(ways, found)], LOOKS)
        rows = [self._row(way, found, times) for way in ways]
        if found[EXACT].failure is not None:
            return tuple(rows)
        listed = points(self.sizes, labels, times, lambda size, s: (("per entry:", seconds(s / size)),))
        return (*rows, Curve("shapes", f"time by the size of {self.text}, exact", self.text, listed))

    def _case(self, size: int, padded: int) -> Case:
        return replace(self.case, inputs=Resized(self.case, self.seed, self.axes, size, padded))

    def _pairs(self, ways: Mapping[str, Sequence[Case]], found: Mapping[str, Counted]) -> list[Pair]:
        """Pairs the two ways to pad with the exact size, if they really pad and are right."""
        if found[EXACT].failure is not None:
            return []
        pairs: list[Pair] = []
        for way in (PADDED, BUCKETED):
            if found[way].failure is None and not found[way].disagreement:
                pairs += [
                    Pair(f"{way} {size}", EXACT, ways[EXACT][i], way, ways[way][i])
                    for i, size in enumerate(self.sizes)
                    if self._padded_size(way, size) != size
                ]
        return pairs

    def _padded_size(self, way: str, size: int) -> int:
        return {EXACT: size, PADDED: max(self.sizes), BUCKETED: bucket(size)}[way]

    def _row(self, way: str, found: Mapping[str, Counted], times: Mapping[str, Comparison]) -> VariantRow:
        one, name = found[way], f"shapes: {way}"
        if one.failure is not None:
            return variant_rows.failed_row(name, TITLES[way], one.failure)
        row = VariantRow(name, TITLES[way])
        if one.disagreement:
            why = f"zeros at the end change the useful part, so it needs a mask: {one.disagreement}"
            return variant_rows.wrong_row(row, why)
        own = {size: times[f"{way} {size}"] for size in self.sizes if f"{way} {size}" in times}
        wasted = self._describe_waste(way, found)
        lost = f"which cost {seconds(one.lost_s)} in first calls"
        programs = f"{plural(one.programs, 'program')} for {len(self.sizes)} sizes"
        reason = "size by size, below" if own else "the others are compared with it, where they pad"
        absent = Absent("comparison", reason)
        return replace(
            row,
            reason=reason,
            facts=self._facts(own),
            sentence="; ".join(filter(None, (f"{programs}, {lost}", wasted))),
            absent=(absent,),
        )

    def _facts(self, own: Mapping[int, Comparison]) -> Facts:
        listed: list[tuple[str, str]] = []
        for size, c in own.items():
            each = ""
            if c.baseline_value and c.candidate_value:
                each = f"; {seconds(c.baseline_value / size)} → {seconds(c.candidate_value / size)} per useful entry"
            listed.append((f"{self.text}={size}", in_words(c) + each))
        return tuple(listed)

    def _describe_waste(self, way: str, found: Mapping[str, Counted]) -> str:
        """Operations on padding, by XLA's estimates for the programs."""
        if way == EXACT or found[EXACT].failure is not None:
            return ""
        exact = dict(zip(self.sizes, (call.flops for call in found[EXACT].calls), strict=True))
        programs = {
            self._padded_size(way, size): call.flops
            for size, call in zip(self.sizes, found[way].calls, strict=True)
            if call.programs
        }
        needed = [exact[size] for size in self.sizes]
        spent = [programs.get(self._padded_size(way, size)) for size in self.sizes]
        # A program with loops has no estimate here: XLA counts their bodies once, however long the padding makes them.
        if None in needed or None in spent or not sum(n or 0 for n in needed):
            return "wasted operations not known: XLA gives no estimate, or counts bodies of loops once"
        more = sum(s or 0 for s in spent) / sum(n or 0 for n in needed) - 1
        return f"{percent(more)} more operations than needed, by XLA's estimate" if more > 0 else ""


MEMBERS = (ShapeBuckets(),)
