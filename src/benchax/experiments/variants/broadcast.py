"""`vmap` over some arguments with the others shared (`in_axes=None`), against copies of these for each example.

The copies are made before the clock starts: what is compared is reading one array often with reading many arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments import variant_rows
from benchax.experiments.lab import Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.study import Observation, StudySide
from benchax.experiments.sweeping import LOOKS
from benchax.experiments.variant import Measure
from benchax.experiments.variants.vectorize import Batching, Vmapped, parse_batching
from benchax.model import Absent
from benchax.results.experiment import Facts, VariantRow
from benchax.units import size as bytes_text

COPIED, SHARED = "in_axes: copied", "in_axes"


@dataclass(frozen=True)
class InAxes:
    name: str = "in_axes"
    title: str = "vmap with shared arguments (in_axes=None), or with copies of them (in_axes=x=64)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told which arguments have a batch axis, and its size: in_axes=x=64")
        asked = parse_batching(self.name, case, given, seed)
        if not asked.words or len(asked.sizes) != 1:
            raise UsageError(
                f"in_axes is given {len(asked.sizes)} sizes"
                if asked.words
                else f"in_axes is given {given!r}, which names no argument with a batch axis",
                f"some of {', '.join(asked.permitted)}, and one size: in_axes=x=64",
                "vmap without in_axes= takes the first axis of every argument for the batch",
            )
        if all(asked.is_mapped):
            raise NotAvailable("every argument has a batch axis, so that none is shared")
        return _Pair(_copy_batched(asked), _share_batched(asked)).measure


def _copy_batched(asked: Batching) -> Case:
    fn = Vmapped(asked.alone.fn, (True,) * len(asked.is_mapped))
    return replace(asked.alone, fn=fn, inputs=asked.inputs(asked.sizes[0], is_spread=True))


def _share_batched(asked: Batching) -> Case:
    fn = Vmapped(asked.alone.fn, asked.is_mapped)
    return replace(asked.alone, fn=fn, inputs=asked.inputs(asked.sizes[0]))


@dataclass(frozen=True)
class _Pair:
    copied: Case
    shared: Case

    def measure(self, lab: Lab) -> tuple[VariantRow, ...]:
        looked = lab.study([StudySide(COPIED, self.copied), StudySide(SHARED, self.shared)])
        titles = {COPIED: "copies for each example", SHARED: "shared, in_axes=None"}
        failed = {
            name: variant_rows.failed_row(name, titles[name], failure) for name, failure in looked.failures.items()
        }
        rows = {name: variant_rows.seen_row(name, titles[name], seen) for name, seen in looked.seen.items()} | failed
        if failed or len(rows) < 2:
            return tuple(rows.values())
        seen = looked.seen
        if why := variant_rows.wrongness(None, seen[SHARED], seen[COPIED]):
            return (rows[COPIED], variant_rows.wrong_row(rows[SHARED], why))
        pair = Pair("in_axes", COPIED, self.copied, SHARED, self.shared)
        row = variant_rows.add_comparison(rows[SHARED], lab.time_pairs([pair], LOOKS)[pair.name], rows[COPIED])
        absent = (*rows[COPIED].absent, Absent("comparison", f"the row {SHARED!r} is compared with it"))
        first = replace(rows[COPIED], reason=f"{SHARED} is compared with it", absent=absent)
        return (replace(first, facts=_facts(seen[COPIED])), replace(row, facts=_facts(seen[SHARED])))


def _facts(seen: Observation) -> Facts:
    held = seen.plan.argument_bytes
    return (("inputs", seen.signature), *((("input bytes", bytes_text(held)),) if held is not None else ()))


MEMBERS = (InAxes(),)
