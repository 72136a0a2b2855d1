"""`Audit`: the findings of an audit in a function or a program, the rules that it checked, and suppressed findings.

    Finding     one piece of advice: where, what was seen, what it gains, what to do
    Checked     one rule: fine, finding, not applicable, or not checked, and why
    Suppressed  a finding that the author of the code has silenced, and the reason
    Audit       all of it
    Checklist   the advice that everybody gives, ticked off for one function by what was measured

A gain states whether it was measured or estimated. `None` means not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from benchax.model import Environment, Remark, Severity
from benchax.renderers import Displayed

SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""Lowest first."""
Outcome = Literal["fine", "finding", "not applicable", "not checked"]
Where = tuple[str, int]
"""File and line, from 1."""
Related = tuple[str, str, int]
"""A label for another line, and its file and line: ("called here", "train.py", 31)."""

PACK_OFF = "pack-off"
"""The code of the remark that names rules which are off by default."""

Answer = Literal["yes", "no", "not applicable", "not checked"]


@dataclass(frozen=True)
class Finding:
    """Something that could be better, with what was seen of it."""

    rule: str
    severity: Severity
    title: str
    """The problem in a line: "called 3 times without jit"."""
    seen: tuple[str, ...]
    """The evidence: sentences with numbers."""
    advice: str
    """What to do."""
    page: str
    """docs/reference/rules/not-jitted.md"""
    where: Where | None = None
    """None: it is not about one line, or the source cannot be read."""
    gain: str | None = None
    """"measured: …" or "estimated: …"; None: neither."""
    gain_s: float | None = None
    """Seconds of each call."""
    gain_bytes: int | None = None
    related: tuple[Related, ...] = ()
    """Other lines that have to do with it."""

    @property
    def lines(self) -> list[Where]:
        """Every line that it names, its own first."""
        return [*([self.where] if self.where else []), *((file, line) for _, file, line in self.related)]

    def __post_init__(self) -> None:
        if self.gain is not None and not self.gain.startswith(("measured: ", "estimated: ")):
            raise ValueError(f"gain {self.gain!r} does not begin with 'measured: ' or 'estimated: '")


@dataclass(frozen=True)
class Checked:
    """The outcome of one rule."""

    rule: str
    title: str
    outcome: Outcome
    why: str = ""
    """Why it is not applicable or was not checked; empty else."""


@dataclass(frozen=True)
class Suppressed:
    """A finding that is not to be shown as one."""

    finding: Finding
    reason: str
    by: str
    """The place of the suppression: train.py:12, or [tool.benchax.audit] of pyproject.toml."""


@dataclass(frozen=True)
class Audit(Displayed):
    """The findings of an audit, and the rules that it checked.

    Example:
        >>> a = benchax.audit(jnp.sin, "f32[8]", rules=["key-reuse"])
        >>> a.findings, a.reaches("warning")
        ((), False)
    """

    name: str
    signature: str = ""
    """The inputs as specs; empty for a program."""
    findings: tuple[Finding, ...] = ()
    """The gravest first, then those that gain most."""
    checked: tuple[Checked, ...] = ()
    """Every rule, in the order in which they were asked."""
    suppressed: tuple[Suppressed, ...] = ()
    remarks: tuple[Remark, ...] = ()
    elapsed_s: float = 0.0
    environment: Environment | None = None

    def reaches(self, severity: Severity) -> bool:
        """Is there a finding of this severity or a graver one?"""
        return any(SEVERITIES.index(f.severity) >= SEVERITIES.index(severity) for f in self.findings)

    def outcomes(self, outcome: Outcome) -> tuple[Checked, ...]:
        return tuple(c for c in self.checked if c.outcome == outcome)


@dataclass(frozen=True)
class Tick:
    """One piece of advice."""

    section: str
    text: str
    """The advice: "Enable buffer donation"."""
    answer: Answer
    """Is it followed, or not needed?"""
    why: str
    """The measured value, or why the advice does not apply or was not checked."""
    by: tuple[str, ...] = ()
    """Rules and variants that answered."""


@dataclass(frozen=True)
class Checklist(Displayed):
    """All of it, for one function.

    Example:
        >>> c = benchax.Checklist("step", "f32[8]", ticks=())  # as `checklist` returns it, with ticks
        >>> [tick.text for tick in c.ticks if tick.answer == "no"]
        []
    """

    name: str
    signature: str
    ticks: tuple[Tick, ...]
    elapsed_s: float = 0.0
    environment: Environment | None = None
