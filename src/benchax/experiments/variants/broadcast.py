"""`vmap` over some arguments with the others shared (`in_axes=None`), against copies of these for each example.

The copies are made before the clock starts: what is compared is reading one array often with reading many arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.executors.pool import shared_pool
from benchax.experiments import judging
from benchax.experiments.asked import arguments, axes, halves, sizes
from benchax.experiments.base import Facts, Prepared, Seen, Tell
from benchax.experiments.functions import argument_name, plain
from benchax.experiments.resized import Batched, OfArrays, of_arrays
from benchax.experiments.study import Side, Study, study
from benchax.experiments.sweeping import Means, means
from benchax.experiments.timing import Duel
from benchax.experiments.variants.vectorize import Vmapped
from benchax.measuring.inputs import make_inputs
from benchax.model import Absent
from benchax.results.experiment import VariantRow
from benchax.units import size as bytes_text

COPIED, SHARED = "in_axes: copied", "in_axes"


@dataclass(frozen=True)
class InAxes:
    name: str = "in_axes"
    title: str = "vmap with shared arguments (in_axes=None), or with copies of them (in_axes=x=64)"
    needs: str = ""
    means: Callable[[Mapping[str, Any]], Means] = means
    study: Callable[..., Study] = study

    def prepare(self, case: Case, given: Mapping[str, Any]) -> Prepared:
        if self.name not in given:
            raise NotMeasured("it has to be told which arguments have a batch axis, and its size: in_axes=x=64")
        seed = given.get("seed", 0)
        unjitted = plain(case, seed)
        inputs = make_inputs(unjitted, seed)
        permitted = arguments(unjitted, inputs)
        text, listed = halves(self.name, given[self.name])
        found = sizes(self.name, listed)
        if not text or len(found) != 1:
            raise UsageError(
                f"in_axes is given {given[self.name]!r}, which names no argument with a batch axis"
                if not text
                else f"in_axes is given {len(found)} sizes",
                f"some of {', '.join(permitted)}, and one size: in_axes=x=64",
                "vmap without in_axes= takes the first axis of every argument for the batch",
            )
        # Named without axes: the batch axis is a new one in front.
        batched = tuple(dict.fromkeys(_key(word, permitted) for word in text.split("+")))
        shared = [key for key in permitted.values() if key not in batched]
        if not shared:
            raise NotAvailable("every argument has a batch axis, so that none is shared")
        return Prepared(unjitted, measure=_Pair(unjitted, seed, batched, found[0], self, given).row, combines=False)


def _key(word: str, permitted: Mapping[str, int | str]) -> int | str:
    by_position = {str(key): key for key in permitted.values()}
    key = permitted.get(word.strip(), by_position.get(word.strip()))
    if key is None:
        raise UsageError(f"in_axes is given the argument {word!r}", f"some of: {', '.join(permitted)}")
    return key
