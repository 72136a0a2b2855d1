"""One rule asked about one function, without time for comparisons, or with one whose outcome is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rules import rules
from benchax.case import Case, make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import Comparison, Version
from benchax.results.audit import Finding
from benchax.results.transfers import Transfers
from benchax.results.watch import Watch


@dataclass
class Answered:
    findings: list[Finding]
    outcome: str
    why: str
    pairs: list[tuple[Case, Case]] = field(default_factory=list[tuple[Case, Case]])
    """(as it is, variant) of each comparison that was asked for."""

    @property
    def one(self) -> Finding:
        (finding,) = self.findings
        return finding


class Scripted(Evidence):
    """Comparisons come out as `ratio` says; what was to be compared is kept."""

    def __init__(self, case: Case, ratio: float) -> None:
        super().__init__(case)
        self.ratio = ratio
        self.pairs: list[tuple[Case, Case]] = []

    def compare(self, name: str, variant: Case, baseline: Case | None = None) -> Comparison:
        self.pairs.append((baseline or self.case, variant))
        verdict = "faster" if self.ratio < 0.98 else "slower" if self.ratio > 1.02 else "same"
        return Comparison(
            self.case.id, "run", Version("as it is"), Version(name), verdict,
            ratio=self.ratio, low=self.ratio - 0.01, high=self.ratio + 0.01, baseline_value=1e-3,
        )  # fmt: skip


Asks = Callable[..., Answered]


@pytest.fixture
def ask_about(monkeypatch: pytest.MonkeyPatch) -> Asks:
    """`ratio`: of every comparison; None: there is no time for any. Measurements are as short as can be."""
    quick = {"store": "off", "max_time_s": 0.02, "max_warmup_s": 0.02, "memory": False}
    monkeypatch.setattr("benchax.auditing.evidence.SHORT", quick)

    def about(rule: str, fn: Callable[..., Any], *inputs: Any, ratio: float | None = None, **declared: Any) -> Answered:
        case = make_case(fn, inputs, {}, **declared)
        evidence = Evidence(case, max_time_s=0) if ratio is None else Scripted(case, ratio)
        findings, checked = ask(rules()[rule], evidence)
        return Answered(findings, checked.outcome, checked.why, getattr(evidence, "pairs", []))

    return about


@pytest.fixture
def ask_about_program() -> Asks:
    def about(rule: str, transfers: Transfers | None) -> Answered:
        findings, checked = ask(
            rules()[rule], Evidence(program=ProgramEvidence("python train.py", Watch("all"), transfers=transfers))
        )
        return Answered(findings, checked.outcome, checked.why)

    return about


@pytest.fixture
def result_of() -> Callable[[Case], list[np.ndarray]]:
    """What a case computes, as leaves."""

    def result(case: Case) -> list[np.ndarray]:
        made = make_inputs(case, 0)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(program_of(case).call(*made.args, **made.kwargs))]

    return result
