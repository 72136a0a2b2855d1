"""What a rule is: a function that asks one question about a function or a program, of its evidence.

It looks at `Evidence` and gives findings, none where all is well. Where it cannot apply it raises `NotApplicable`;
where it could but a reading is missing, `NotMeasured` passes through, and the audit says so. A new rule is one module
in `auditing/rules/`, which holds a function of the module's name:

    @rule("not-jitted", "is it compiled as a whole?", "warning")
    def not_jitted(e: Evidence) -> Iterable[Finding]:
        ...
        yield not_jitted.finding("runs operation by operation", seen, "Decorate it with jax.jit.")

one page `docs/rules/<id>.md`, and one test file; there is no list to edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.variant_rows import saved_s, speedup
from benchax.model import Comparison, Measurement, Severity
from benchax.results.audit import Finding, Where
from benchax.units import seconds

RuleSubject = Literal["function", "program", "both"]


class NotApplicable(BenchaxError):
    """A rule cannot apply; `problem` completes the sentence "not applicable, because …"."""


@dataclass(frozen=True)
class Rule:
    """One question, and the function that answers it."""

    id: str
    """In kebab-case: not-jitted. Its page is docs/rules/<id>.md."""
    title: str
    """The question, in a line: "is it compiled as a whole?"."""
    severity: Severity
    """Of its findings, where they do not say another."""
    of: RuleSubject
    """What it can be asked about: one function (`Evidence`), a program that ran (`ProgramEvidence`), or either."""
    find: Callable[[Any], Iterable[Finding]]
    """What it finds in evidence of such a thing; nothing where all is well."""

    def check(self, e: Evidence | ProgramEvidence) -> Iterable[Finding]:
        """What it finds.

        Raises:
            NotApplicable: it has nothing to say about this function or program.
            NotMeasured: a reading that it needs could not be taken.
        """
        if isinstance(e, ProgramEvidence) and self.of == "function":
            raise NotApplicable("a program is audited, not one function with its inputs")
        if not isinstance(e, ProgramEvidence) and self.of == "program":
            raise NotApplicable("one function is audited, not a program")
        return self.find(e)

    def finding(
        self,
        title: str,
        seen: Sequence[str],
        advice: str,
        *,
        where: Where | None = None,
        gain: Gain | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule."""
        gain = gain or Gain()
        return Finding(
            self.id, severity or self.severity, title, tuple(seen), advice, page_of(self.id), where,
            gain.text, gain.seconds, gain.bytes,
        )  # fmt: skip


def rule(
    id: str, title: str, severity: Severity, *, of: RuleSubject = "function"
) -> Callable[[Callable[[Any], Iterable[Finding]]], Rule]:
    """Makes a rule of a function that looks at evidence; the arguments are the fields of `Rule`."""
    return lambda find: Rule(id, title, severity, of, find)


def page_of(rule_id: str) -> str:
    return f"docs/rules/{rule_id}.md"


@dataclass(frozen=True)
class Gain:
    """What following an advice gains, of each call."""

    text: str | None = None
    """Begins with "measured: " or "estimated: "."""
    seconds: float | None = None
    bytes: int | None = None


def measured_gain(c: Comparison) -> Gain | None:
    """Of a comparison of the function as it is (baseline) with a better one; None unless that is faster."""
    if c.verdict != "faster" or c.baseline_value is None or c.ratio is None:
        return None
    saved = saved_s(c, c.ratio)
    now, then = seconds(c.baseline_value), seconds(c.baseline_value - saved)
    return Gain(f"measured: {now} → {then} per call ({speedup(c)})", saved)


def median_s(m: Measurement) -> float:
    """Of a call as Python makes it, waiting for its outputs: the timer that eager functions have as well.

    Raises:
        NotMeasured: there is none.
    """
    summary = m.summary("wall")
    if summary is None:
        raise NotMeasured(m.why_absent("samples.wall") or "the wall timer was not asked")
    return summary.median_s
