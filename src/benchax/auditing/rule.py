"""The definition of a rule: a function that asks one question about a function or a program, from its evidence.

It looks at `Evidence` or `ProgramEvidence` and yields findings, or nothing if all is well. If it cannot apply, it
raises `NotApplicable`. If a reading is missing, `NotMeasured` passes through, and the audit says so. A new rule is a
function in a module of `auditing/rules/`:

    @rule("not-jitted", "is it compiled as a whole?", "warning")
    def not_jitted(e: Evidence) -> Iterable[Finding]:
        ...
        yield not_jitted.finding("runs operation by operation", seen, "Decorate it with jax.jit.")

and a page, `docs/reference/rules/<id>.md`, and programs in `tests/auditing/programs/<id>/`. There is no list to edit. A
rule that looks for a pattern in the traced program is a query: see `traced_rule` in `auditing/traced.py`.

Rules share more code: the severity of a finding (`grade`), the gain of following it, and listing some of many lines.
They also share trying a variant in pairs (`try_variant`) or once (`probe`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from benchax.auditing.evidence import Evidence, NotApplicable, ProgramEvidence
from benchax.auditing.evidence import refuse_failed as refuse_failed
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.experiments.study import Observation, StudySide, study
from benchax.experiments.variant_rows import saved_s, speedup
from benchax.model import Comparison, Measurement, Severity
from benchax.options import resolve
from benchax.results.audit import Finding, Where
from benchax.source_files import owner_of
from benchax.units import seconds
from benchax.workers.pool import Pool

MOST_LISTED = 5
"""Lines of one kind in what a finding has seen."""

RuleSubject = Literal["function", "program", "both"]


FELT, LARGE = 0.005, 0.05
"""Shares of a run or call. Below the first a finding is not worth a line: two runs of one program differ by more. From
the second on it is worth a warning: that is where the CI recipes of `benchax compare` fail (docs/how-to/ci.md)."""


def grade(lost: float, of: float | None) -> Severity | None:
    """The severity of a finding by its cost: seconds or bytes lost, as a share of the run or call.

    One rule for all findings about cost. None: not worth a line. Time and memory are warnings at most; an error is a
    wrong result or a failure, and the rule states it.

    Args:
        of: the whole; None if unknown, which makes it a warning.
    """
    if of is None or lost >= LARGE * of:
        return "warning"
    return "info" if lost >= FELT * of else None


@dataclass(frozen=True)
class Rule:
    """One question, and the function that answers it."""

    id: str
    """In kebab-case: not-jitted. Its page is docs/reference/rules/<id>.md."""
    title: str
    """The question, in a line: "is it compiled as a whole?"."""
    severity: Severity
    """The severity of its findings, where they do not say another."""
    of: RuleSubject
    """The subject of the rule: one function (`Evidence`), a program that ran (`ProgramEvidence`), or either."""
    needs_trace_only: bool
    """Needs no more of a function than its jaxpr and its source: so every function of a program can be asked about."""
    find: Callable[[Any], Iterable[Finding]]
    """Finds problems in evidence of such a subject; it yields nothing if all is well."""
    pack: str = ""
    """Empty: it is asked by default. Otherwise only by the name of this pack, or by its own."""

    def check(self, e: Evidence | ProgramEvidence) -> Iterable[Finding]:
        """Yields its findings.

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
        related: Iterable[tuple[str, Where | None]] = (),
        gain: Gain | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """A finding of this rule.

        Args:
            where: the line to change, if it is known; else the first related line becomes it.
            related: other lines, each with what happens there: ("called here", …).
        """
        gain = gain or Gain()
        others = [(label, place) for label, place in related if place is not None and _is_yours(place)]
        where = where if where is not None and _is_yours(where) else others[0][1] if others else None
        places = dict.fromkeys((label, *place) for label, place in others if place != where)
        return Finding(
            self.id, severity or self.severity, title, tuple(seen), advice, page_of(self.id), where,
            gain.text, gain.seconds, gain.bytes, tuple(places),
        )  # fmt: skip


def _is_yours(place: Where) -> bool:
    """Is it a line that you could look at? None inside of benchax or JAX is."""
    return owner_of(place[0]) not in ("benchax", "jax")


def rule(
    id: str,
    title: str,
    severity: Severity,
    *,
    of: RuleSubject = "function",
    needs_trace_only: bool = False,
    pack: str = "",
) -> Callable[[Callable[[Any], Iterable[Finding]]], Rule]:
    """Makes a rule of a function that looks at evidence; the arguments are the fields of `Rule`."""
    return lambda find: Rule(id, title, severity, of, needs_trace_only, find, pack)


def page_of(rule_id: str) -> str:
    return f"docs/reference/rules/{rule_id}.md"


def list_some(lines: Sequence[str], most: int = MOST_LISTED, what: str = "") -> list[str]:
    """The first of them, and how many more there are (of `what`)."""
    more = f"and {len(lines) - most} more {what}".rstrip()
    return [*lines[:most], more] if len(lines) > most else list(lines)


@dataclass(frozen=True)
class Gain:
    """The gain from following an advice, for each call."""

    text: str | None = None
    """Begins with "measured: " or "estimated: "."""
    seconds: float | None = None
    bytes: int | None = None


def measured_gain(c: Comparison) -> Gain | None:
    """Returns the gain of a better function over the unchanged one (baseline), or None unless it is faster."""
    if c.verdict != "faster" or c.baseline_value is None or c.ratio is None:
        return None
    saved = saved_s(c, c.ratio)
    now, then = seconds(c.baseline_value), seconds(c.baseline_value - saved)
    return Gain(f"measured: {now} → {then} per call ({speedup(c)})", saved)


def require_decided(c: Comparison, what: str) -> Comparison:
    """A comparison that says something: "nothing found" must not come of one that could not tell.

    Args:
        what: it was of: "jax.jit".

    Raises:
        NotMeasured: it is unclear.
    """
    if c.verdict != "unclear":
        return c
    seen = f", though {speedup(c)} was seen" if c.ratio else ""
    raise NotMeasured(f"the comparison with {what} is undecided{seen}{f': {c.why}' if c.why else ''}")


def median_s(m: Measurement) -> float:
    """The median time of a call as Python makes it, waiting for its outputs, which eager functions have as well.

    Raises:
        NotMeasured: there is no median time.
    """
    return m.summary("wall").median_s


class Tried(NamedTuple):
    """The result of a comparison."""

    gain: Gain | None
    """None unless the variant is faster."""
    sentence: str
    """The measured result, or why there is no measurement."""
    comparison: Comparison | None


def try_variant(e: Evidence, name: str, variant: Case, baseline: Case | None = None) -> Tried:
    """Compares run times. Nothing measured is a sentence here, for the finding has other evidence."""
    try:
        comparison = e.compare(name, variant, baseline)
    except NotMeasured as error:
        return Tried(None, f"{name}: gain not measured, because {error.problem}", None)
    return Tried(measured_gain(comparison), f"{name}: {_describe(comparison)}", comparison)


def gain_of_part(e: Evidence, gain: Gain | None, what: str) -> Gain | None:
    """Returns the gain of a part that was compared by itself. It is at most the time of a call, if that is known."""
    if gain is None or gain.text is None:
        return None
    saved = gain.seconds
    with contextlib.suppress(NotMeasured, NotApplicable):
        saved = None if saved is None else min(saved, median_s(e.measurement))
    return Gain(f"{gain.text}, of {what} alone", saved, gain.bytes)


def _describe(c: Comparison) -> str:
    if c.verdict == "unclear":
        return f"time unclear{f': {c.why}' if c.why else ''}"
    if c.verdict == "same":
        return "as fast as before"
    return f"{c.verdict} ({speedup(c)})"


def with_bytes(gain: Gain | None, size_bytes: int, text: str) -> Gain:
    """A gain that has bytes too; `text` says so without time, and begins with "measured: " or "estimated: "."""
    if gain is None or gain.text is None:
        return Gain(text, None, size_bytes)
    added = text.partition(": ")
    return replace(gain, text=f"{gain.text}; {added[2] if gain.text.startswith(added[0]) else text}", bytes=size_bytes)


def probe(e: Evidence, name: str, variant: Case) -> tuple[Observation, Observation]:
    """(the function, the variant), each built and run once in another process, with their errors against float64.

    Raises:
        NotMeasured: one of them fails there, or the function may not be called.
    """
    if e.why_not_called:
        raise NotMeasured(e.why_not_called)
    options = resolve(
        {"store": "off", "memory": False, "seed": e.seed, "timeout_s": e.timeout_s}, project=e.case.folder
    )
    sides = [StudySide("as it is", e.plain_case), StudySide(name, variant)]
    with Pool() as pool:
        found = study(pool, sides, options, lambda text: None)
    for side in sides:
        if side.name not in found.seen:
            failure = found.failures.get(side.name) or found.failures.get("as it is")
            raise NotMeasured(f"{side.name} fails: {failure.message if failure else 'no answer'}")
    return found.seen["as it is"], found.seen[name]
