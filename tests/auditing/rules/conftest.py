"""One rule asked about one function, without time for comparisons, or with one whose outcome is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
import pytest
from evidence_by_hand import ScriptedEvidence

from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.recorder.log import FunctionUse
from benchax.auditing.rules import rules
from benchax.case import Case, make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.model import CaseId, Comparison, Version
from benchax.results.audit import Finding


@dataclass
class Answered:
    findings: list[Finding]
    outcome: str
    why: str
    pairs: list[tuple[Case, Case]] = field(default_factory=list[tuple[Case, Case]])
    """(as it is, variant) of each comparison that was requested."""

    @property
    def one(self) -> Finding:
        (finding,) = self.findings
        return finding


def comes_out(ratio: float) -> Callable[[str], Comparison]:
    """Every comparison with this ratio."""

    def compare(name: str) -> Comparison:
        verdict = "faster" if ratio < 0.98 else "slower" if ratio > 1.02 else "same"
        return Comparison(
            CaseId("f"), "run", Version("as it is"), Version(name), verdict,
            ratio=ratio, low=max(ratio - 0.01, ratio / 2), high=ratio + 0.01, baseline_value=1e-3,
        )  # fmt: skip

    return compare


USE = {"repeated_inputs": "repeated", "carried": "carried", "called_at": "called_at", "wide_lines": "wide_lines"}
"""Parts that tell how a program uses the function, and their names in `FunctionUse`."""
Asks = Callable[..., Answered]


@pytest.fixture
def ask_about(monkeypatch: pytest.MonkeyPatch) -> Asks:
    """`ratio`: of every comparison; None: there is no time for any. `parts` of the evidence are given, not measured.
    Measurements are as short as can be."""
    quick = {"store": "off", "max_time_s": 0.02, "max_warmup_s": 0.02, "memory": False}
    monkeypatch.setattr("benchax.auditing.evidence.SHORT", quick)

    def about(
        rule: str,
        fn: Callable[..., Any],
        *inputs: Any,
        ratio: float | None = None,
        parts: Mapping[str, Any] | None = None,
        **declared: Any,
    ) -> Answered:
        use = {USE[name]: value for name, value in (parts or {}).items() if name in USE}
        live = Evidence(make_case(fn, inputs, {}, **declared), max_time_s=0, use=FunctionUse(**use))
        evidence = ScriptedEvidence(live, compare=None if ratio is None else comes_out(ratio), **parts or {})
        findings, checked = ask(rules()[rule], evidence)
        return Answered(findings, checked.outcome, checked.why, evidence.pairs)

    return about


@pytest.fixture
def result_of() -> Callable[[Case], list[np.ndarray]]:
    """What a case computes, as leaves."""

    def result(case: Case) -> list[np.ndarray]:
        made = make_inputs(case, 0)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(program_of(case).call(*made.args, **made.kwargs))]

    return result
