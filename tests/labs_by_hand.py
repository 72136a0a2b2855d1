"""A lab for variants: looks and counts are real, in a worker; run times are made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from comparisons_by_hand import compared

from benchax.case import Case, make_case
from benchax.experiments.lab import Condition, Pair, WorkerLab
from benchax.experiments.variant import Variant
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import Block, Comparison, Failure, Measurement, Options, Version
from benchax.options import resolve
from benchax.results.experiment import Curve, VariantRow
from benchax.workers.task import Failed


class ScriptedLab(WorkerLab):
    """Comparisons come out with these ratios, by the name of the pair; `usual` for others. Keeps what was compared.

    Args:
        alone: every measurement in a process of its own; None: there is none.
        answers: what tasks are called instead of: another task, or a function of the argument that answers here.
    """

    def __init__(
        self,
        ratios: Mapping[str, float] | None = None,
        *,
        usual: float = 1.0,
        alone: Measurement | None = None,
        answers: Mapping[Any, Any] | None = None,
    ) -> None:
        super().__init__(resolve())
        self.ratios, self.usual, self.alone, self.answers = ratios or {}, usual, alone, answers or {}
        self.pairs: dict[str, Pair] = {}
        self.conditions: list[tuple[Condition, Condition]] = []
        """Of the pairs of processes."""
        self.looks: tuple[int, ...] | None = None
        """Of the last comparisons that were given any."""

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        self.pairs |= {pair.name: pair for pair in pairs}
        self.looks = looks or self.looks
        return {pair.name: self._compared(pair) for pair in pairs}

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        self.conditions.append(conditions)
        return compared(1, self.usual)

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        assert self.alone is not None, "no measurement is needed here"
        return self.alone

    def call_alone(self, task: Any, argument: Any, **more: Any) -> Any:
        answer = self.answers.get(task, task)
        if len(signature(answer).parameters) == 2:  # a task
            return super().call_alone(answer, argument, **more)
        found = answer(argument)
        if isinstance(found, Failure):
            raise Failed(found)
        return found

    def outputs(self, name: str) -> tuple[Any, Any]:
        """Of both sides of a pair."""
        return outputs(self.pairs[name].one), outputs(self.pairs[name].other)

    def _compared(self, pair: Pair) -> Comparison:
        ratio = self.ratios.get(pair.name, self.usual)
        blocks = tuple(Block(i // 3, (1e-5,) * 3, (1e-5 * ratio,) * 3) for i in range(6))
        one, other = Version(pair.one_label), Version(pair.other_label)
        return compared(1, ratio, blocks=blocks, baseline=one, candidate=other)


def outputs(case: Case) -> Any:
    inputs = make_inputs(case, 0)
    return program_of(case).call(*inputs.args, **inputs.kwargs)


def swept(
    variant: Variant, given: Any, fn: Any, *args: Any, lab: Any = None, static: Sequence[str] = ()
) -> tuple[dict[str, VariantRow], dict[str, Curve]]:
    """(rows by name, curves by name) of a variant that measures by itself."""
    found = variant.plan(make_case(fn, args, static=static), given)(lab or ScriptedLab())
    rows = {one.name: one for one in found if isinstance(one, VariantRow)}
    return rows, {one.name: one for one in found if isinstance(one, Curve)}
