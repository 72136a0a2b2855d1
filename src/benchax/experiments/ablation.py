"""All variants at once, and the contribution of each: all but one against all.

The combination has the variants whose row has no failure, and only the fastest of each family. It also has variants
that only apply once others are on (accumulating in float32, after bf16). They are applied in the order of `VARIANTS`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments import variant_rows
from benchax.experiments.lab import BASELINE, Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.study import Observation, Study, StudySide, under
from benchax.experiments.variant import AnyVariant, ChangedCase, ChangingVariant
from benchax.measuring.diagnosis import diagnose
from benchax.model import Comparison, Remark
from benchax.results.experiment import Contribution, Experiment, VariantRow
from benchax.units import seconds, seconds_range, size

ALL = "all"


def add_combination(
    found: Experiment,
    case: Case,
    variants: Mapping[str, AnyVariant],
    lab: Lab,
    given: Mapping[str, Any],
    *,
    is_ablation: bool,
) -> Experiment:
    """Returns the experiment with a row "all", and each variant's contribution to it if that was requested."""
    combiner = Combiner(case, found, given, lab.options.seed)
    candidates = _candidates(found, variants)
    one, on, why = combiner.apply(candidates)
    remarks = (*found.remarks, *why)
    if one is None or len(on) < 2:
        text = "there is no combination: " + (f"only {on[0]} can be on" if on else "no variant can be on")
        return replace(found, remarks=(*remarks, Remark("no-combination", "info", text)))
    less: dict[str, ChangedCase | None] = {}
    for name in on if is_ablation else ():
        others = [each for each in candidates if each.name in on and each.name != name]
        # Applied anew: what only applies after the one left out (float32 sums after bf16) goes with it.
        less[name], _, _ = combiner.apply(others)
    sides = [each.as_side(f"all but {name}") for name, each in less.items() if each]
    looked = lab.study([StudySide(BASELINE, case), one.as_side(ALL), *sides])
    if BASELINE not in looked.seen:
        text = f"there is no combination: {looked.failures[BASELINE].message}"
        return replace(found, remarks=(*remarks, Remark("no-combination", "warning", text)))
    row = variant_rows.judge_variants(case, {ALL: " + ".join(on)}, {ALL: one}, looked, found.baseline, lab)[ALL]
    ablation = _contributions(one, less, row, looked, lab) if is_ablation and row.status == "ok" else None
    if is_ablation and ablation is None:
        remarks = (*remarks, Remark("no-ablation", "warning", f"there is no ablation: all together, {row.reason}"))
    return replace(found, rows=(*found.rows, row), ablation=ablation, remarks=remarks)


def _candidates(found: Experiment, variants: Mapping[str, AnyVariant]) -> list[ChangingVariant]:
    """Those that change a case, but for what failed, or gave wrong results."""
    bad = {row.name for row in found.rows if row.status in ("failed", "wrong_result")}
    # The kinds of one variant, as remat:dots_saveable, have rows of their own.
    kinds = {name: [row for row in found.rows if row.name.startswith(f"{name}:")] for name in variants}
    bad |= {name for name, rows in kinds.items() if rows and all(row.name in bad for row in rows)}
    return [each for name, each in variants.items() if name not in bad and isinstance(each, ChangingVariant)]


@dataclass(frozen=True)
class Combiner:
    """How variants are applied to one case, one after the other."""

    case: Case
    found: Experiment
    given: Mapping[str, Any]
    seed: int

    def apply(self, candidates: Sequence[ChangingVariant]) -> tuple[ChangedCase | None, list[str], tuple[Remark, ...]]:
        """Returns (a case with all variants that can be on, their names, remarks on the others)."""
        whole: ChangedCase | None = None
        on: list[str] = []
        notes: list[Remark] = []
        chosen = self._fastest_of_families(candidates)
        for variant in candidates:
            if variant.name not in chosen:
                continue
            try:
                with under(whole.settings if whole else {}):
                    one = self._change(variant, whole.case if whole else self.case)
            except (NotAvailable, NotMeasured):
                continue  # alone it has a row that says why
            except Exception as error:  # the user's function, changed by those before: they go on without this one
                why = diagnose(error, "preparing").message
                notes.append(Remark("not-combined", "warning", f"{variant.name} is off among all: {why}"))
                continue
            if one.combines:
                whole, on = _merge(whole, one), [*on, variant.name]
        return whole, on, tuple(notes)

    def _fastest_of_families(self, candidates: Sequence[ChangingVariant]) -> set[str]:
        """Returns one name of each family: the first of the fastest variants that are indistinguishable."""
        clear = [row for row in self.found.rows if row.comparison and row.comparison.verdict in ("faster", "slower")]
        speed = {row.name: row.comparison.ratio or 1.0 for row in clear if row.comparison}
        best: dict[str, str] = {}
        for variant in candidates:
            family = self._family(variant) or variant.name
            if family not in best or speed.get(variant.name, 1.0) < speed.get(best[family], 1.0):
                best[family] = variant.name
        return set(best.values())

    def _family(self, variant: ChangingVariant) -> str:
        try:
            return self._change(variant, self.case).family
        except Exception:  # it has a row that says why, and may yet be on after others
            return ""

    def _change(self, variant: ChangingVariant, case: Case) -> ChangedCase:
        return variant.change(case, self.given.get(variant.name), self.seed)


def _merge(whole: ChangedCase | None, one: ChangedCase) -> ChangedCase:
    if whole is None:
        return ChangedCase(one.case, one.tolerance, settings=one.settings, rounds_to=one.rounds_to)
    tolerances = [t for t in (whole.tolerance, one.tolerance) if t is not None]
    settings = {**whole.settings, **one.settings}
    # Of those that convert, a combination has one at most.
    rounds_to = whole.rounds_to or one.rounds_to
    return ChangedCase(one.case, max(tolerances, default=None), settings=settings, rounds_to=rounds_to)


def _contributions(
    everything: ChangedCase,
    less: Mapping[str, ChangedCase | None],
    row: VariantRow,
    looked: Study,
    lab: Lab,
) -> tuple[Contribution, ...]:
    pairs = [
        Pair(name, ALL, everything.case, f"all but {name}", one.case, {**everything.settings, **one.settings})
        for name, one in less.items()
        if one is not None and f"all but {name}" in looked.seen and not _is_same(looked, name)
    ]
    comparisons = lab.time_pairs(pairs)
    rows = {name: _row_without(name, looked) for name in less}
    return tuple(contribution(name, comparisons.get(name), row, rows[name]) for name in less)


def _is_same(looked: Study, name: str) -> bool:
    return looked.seen[ALL].is_same_program(looked.seen[f"all but {name}"])


def _row_without(name: str, looked: Study) -> VariantRow:
    label = f"all but {name}"
    if label in looked.failures:
        return variant_rows.failed_row(label, "", looked.failures[label])
    seen: Observation | None = looked.seen.get(label)
    if seen is None:
        return variant_rows.refused_row(label, "", "not_available", "the others cannot be on without it")
    row = variant_rows.seen_row(label, "", seen)
    return (
        replace(row, sentence="does nothing here: the program is the same without it")
        if _is_same(looked, name)
        else row
    )


def contribution(name: str, comparison: Comparison | None, everything: VariantRow, without: VariantRow) -> Contribution:
    """Returns the loss without one variant. `comparison`: the others against all."""
    both = None not in (everything.peak_bytes, without.peak_bytes)
    saved_bytes = (without.peak_bytes or 0) - (everything.peak_bytes or 0) if both else None
    if comparison is None or comparison.ratio is None:
        why = comparison.why if comparison else without.reason or without.sentence
        memory = variant_rows.memory_change(everything.peak_bytes, without.peak_bytes)
        return Contribution(
            name, comparison, None, saved_bytes=saved_bytes, sentence="; ".join(filter(None, (memory, why)))
        )
    middle, low, high = (
        None if ratio is None else -variant_rows.saved_s(comparison, ratio)
        for ratio in (comparison.ratio, comparison.low, comparison.high)
    )
    return Contribution(
        name,
        comparison,
        middle,
        low,
        high,
        saved_bytes,
        _describe_contribution(comparison, middle, low, high, saved_bytes),
    )


def _in_order(a: float, b: float) -> tuple[float, float]:
    return min(a, b), max(a, b)


def _describe_contribution(
    c: Comparison, saved: float | None, low: float | None, high: float | None, saved_bytes: int | None
) -> str:
    words = {"slower": "saves", "faster": "costs", "same": "makes no difference", "unclear": "unclear"}
    text = words[c.verdict]
    if c.verdict in ("slower", "faster") and saved is not None:
        sign = 1 if c.verdict == "slower" else -1
        around = ""
        if low is not None and high is not None:
            around = f" ({seconds_range(*_in_order(sign * low, sign * high))})"
        text = f"{text} {seconds(sign * saved)}{around}"
    elif c.why:
        text = f"{text}: {c.why}" if c.verdict == "unclear" else f"{text} ({c.why})"
    if saved_bytes:
        text += f"; {'saves' if saved_bytes > 0 else 'costs'} {size(abs(saved_bytes))}"
    return text
