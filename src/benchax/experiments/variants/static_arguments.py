"""An argument static, or traced, over a list of its values: programs, what they cost, and the run time with each value.

A static argument is part of the program: XLA can make more of it, and each new value costs a compilation. A traced one
is data: one program serves all values, but Python cannot branch on it, loop over it or make a shape of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments import variant_rows
from benchax.experiments.counting import Counted
from benchax.experiments.functions import argument_name, plain
from benchax.experiments.lab import Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.parsing import find_argument, halves, values
from benchax.experiments.sweeping import LOOKS, With, in_words
from benchax.experiments.variant import Measure
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Absent, Comparison
from benchax.results.experiment import Facts, VariantRow
from benchax.units import count, plural, seconds

TRACED, STATIC = "traced", "static"


@dataclass(frozen=True)
class StaticVariant:
    name: str = "static"
    title: str = "an argument static, or traced, over a list of its values (static=n=1,2,3)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told which argument, and which values: static=n=1,2,3")
        if not case.jit:
            raise NotAvailable("only a jitted function has static arguments")
        text, listed = halves(self.name, given)
        chosen = values(self.name, listed)
        unjitted = plain(case, seed)
        key = _argument(text, unjitted, make_inputs(unjitted, seed))
        label = argument_name(unjitted.fn, key)
        return _StaticSweep(unjitted, key, label, chosen).measure


def _argument(text: str, case: Case, inputs: Inputs) -> int | str:
    """Its position or name in the call."""
    keys: list[int | str] = [*range(len(inputs.args)), *inputs.kwargs]
    return find_argument("static", text, {argument_name(case.fn, key): key for key in keys})


@dataclass(frozen=True)
class _StaticSweep:
    case: Case
    key: int | str
    label: str
    values: Sequence[Any]

    def measure(self, lab: Lab) -> tuple[VariantRow, ...]:
        traced, static = zip(*map(self._pair, self.values), strict=True)
        found = lab.count_programs({TRACED: traced, STATIC: static})
        times: dict[str, Comparison] = {}
        if not any(one.failure or one.disagreement for one in found.values()):
            names = [self._name(value) for value in self.values]
            each = zip(names, traced, static, strict=True)
            times = lab.time_pairs([Pair(name, TRACED, a, STATIC, b) for name, a, b in each], LOOKS)
        return (
            self._row("static: traced", f"{self.label} traced", found[TRACED], {}, ""),
            self._row("static", f"{self.label} static", found[STATIC], times, _why_untimed(found)),
        )

    def _name(self, value: Any) -> str:
        return f"{self.label}={value!r}"

    def _pair(self, value: Any) -> tuple[Case, Case]:
        """Traced and static, fed by one factory."""
        # It may have been declared by its position or by its name.
        others = tuple(one for one in self.case.static if one not in (self.key, self.label))
        inputs = With(self.case, self.key, value)
        traced = replace(self.case, inputs=inputs, static=others)
        return traced, replace(traced, static=(*others, self.key))

    def _row(self, name: str, title: str, one: Counted, times: Mapping[str, Comparison], why: str) -> VariantRow:
        if one.failure is not None:
            row = variant_rows.failed_row(name, title, one.failure)
            return replace(row, facts=(("what to do", one.failure.advice),) if one.failure.advice else ())
        row = VariantRow(name, title, facts=self._facts(one, times))
        if one.disagreement:
            return variant_rows.wrong_row(row, one.disagreement)
        sentence = "; ".join(filter(None, (_programs(one), self._verdicts(times))))
        reason = why or ("value by value, below" if times else f"the row {STATIC!r} is compared with it")
        absent = Absent("comparison", reason)
        return replace(row, reason=reason, sentence=sentence, absent=(absent,))

    def _facts(self, one: Counted, times: Mapping[str, Comparison]) -> Facts:
        lost = zip(self.values, one.calls, strict=True)
        new = [f"{self._name(value)}: {seconds(call.lost_s)}" for value, call in lost if call.programs]
        facts = [("first calls took, beyond second ones", ", ".join(new))] if new else []
        for name, c in times.items():
            facts.append((name, in_words(c) + _pays_off(one, c)))
        return tuple(facts)

    def _verdicts(self, times: Mapping[str, Comparison]) -> str:
        """static is faster for n=1, n=2; same for n=3"""
        by_verdict: dict[str, list[str]] = {}
        for name, c in times.items():
            by_verdict.setdefault("failed" if c.failure else c.verdict, []).append(name)
        return "; ".join(f"{verdict} for {', '.join(names)}" for verdict, names in by_verdict.items())


def _programs(one: Counted) -> str:
    several = plural(one.programs, "program")
    cost = f", which cost {seconds(one.lost_s)}" if one.programs else ""
    return f"{several} for {plural(len(one.calls), 'value')}{cost}"


def _pays_off(one: Counted, c: Comparison) -> str:
    """From how many calls on a program for one value pays, by what it saves in a call."""
    if c.verdict != "faster" or not c.ratio or not c.baseline_value or not one.programs:
        return ""
    calls = math.ceil(one.lost_s / one.programs / variant_rows.saved_s(c, c.ratio))
    return f"; a program of its own pays after about {count(calls)} calls with this value"


def _why_untimed(found: Mapping[str, Counted]) -> str:
    failed = [way for way, one in found.items() if one.failure]
    if failed:
        return f"{' and '.join(failed)} it fails, so there are no two times to compare"
    return ""


MEMBERS = (StaticVariant(),)
