"""What rules try: a variant compared in pairs, or looked at once beside the function, each with a sentence of it."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, measured_gain
from benchax.case import Case
from benchax.errors import NotMeasured
from benchax.executors.pool import Pool
from benchax.experiments.base import Observation
from benchax.experiments.study import StudySide, study
from benchax.experiments.variant_rows import speedup
from benchax.model import Comparison
from benchax.options import resolve


class Tried(NamedTuple):
    """What came of a comparison."""

    gain: Gain | None
    """None unless the variant is faster."""
    sentence: str
    """What was measured, or why nothing was."""
    comparison: Comparison | None


def try_variant(e: Evidence, name: str, variant: Case, baseline: Case | None = None) -> Tried:
    """Compares run times. Nothing measured is a sentence here, for the finding stands on other evidence."""
    try:
        comparison = e.compare(name, variant, baseline)
    except NotMeasured as error:
        return Tried(None, f"{name}: gain not measured, because {error.problem}", None)
    return Tried(measured_gain(comparison), f"{name}: {_describe(comparison)}", comparison)


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
