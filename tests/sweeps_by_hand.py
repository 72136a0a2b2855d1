"""Sweeps without clocks: programs are counted in a real worker, run times are made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from comparisons_by_hand import compared

from benchax.case import make_case
from benchax.experiments.base import Variant
from benchax.experiments.pair_timing import Pair
from benchax.experiments.sweeping import SweepSettings, means
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import Block, Comparison, Version
from benchax.results.experiment import Curve, VariantRow


class Times:
    """Comparisons with these ratios, by the name of the duel; 1 for others. `outputs` holds what each side returned."""

    def __init__(self, ratios: Mapping[str, float] | None = None) -> None:
        self.ratios = ratios or {}
        self.duels: dict[str, Pair] = {}

    def __call__(self, duels: Sequence[Pair], *_: Any) -> dict[str, Comparison]:
        self.duels |= {duel.name: duel for duel in duels}
        return {duel.name: self._compared(duel) for duel in duels}

    def _compared(self, duel: Pair) -> Comparison:
        ratio = self.ratios.get(duel.name, 1.0)
        blocks = tuple(Block(i // 3, (1e-5,) * 3, (1e-5 * ratio,) * 3) for i in range(6))
        one, other = Version(duel.one_label), Version(duel.other_label)
        return compared(1, ratio, blocks=blocks, baseline=one, candidate=other)

    def means(self, given: Mapping[str, Any]) -> SweepSettings:
        return replace(means(given), timed=self)

    def outputs(self, name: str) -> tuple[Any, Any]:
        """Of both sides of a duel."""
        return tuple(outputs(case) for case in (self.duels[name].one, self.duels[name].other))


def outputs(case: Any) -> Any:
    inputs = make_inputs(case, 0)
    return program_of(case).call(*inputs.args, **inputs.kwargs)


Made = Callable[..., Variant]


def swept(
    made: Made, told: Any, fn: Any, *args: Any, times: Times | None = None, static: Sequence[str] = (), **more: Any
) -> tuple[dict[str, VariantRow], dict[str, Curve]]:
    """(rows by name, curves by name) of a variant that measures by itself."""
    variant = made(means=(times or Times()).means, **more)
    prepared = variant.prepare(make_case(fn, args, static=static), {variant.name: told, "seed": 0})
    assert prepared.measure is not None
    found = prepared.measure(lambda text: None)
    listed = found if isinstance(found, tuple) else (found,)
    rows = {one.name: one for one in listed if isinstance(one, VariantRow)}
    return rows, {one.name: one for one in listed if isinstance(one, Curve)}
