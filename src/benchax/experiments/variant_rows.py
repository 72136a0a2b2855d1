"""From what was seen of a variant, and its comparison, to a row with a sentence."""

from __future__ import annotations

from dataclasses import replace

from benchax.experiments.base import Observation
from benchax.model import Absent, Comparison, Failure
from benchax.results.experiment import Contribution, Errors, Status, VariantRow
from benchax.units import number, percent, seconds, seconds_range, size

SAME_PROGRAM = "does nothing here: the compiled program is the same"
COMPARED_ELSEWHERE = ("outputs-differ",)
"""Remarks of a comparison that say, by other rules, what the errors say."""


def seen_row(name: str, title: str, seen: Observation) -> VariantRow:
    """All but verdicts."""
    build = () if seen.build_s is not None else (Absent("compile_s", "nothing is compiled as a whole"),)
    plan = () if seen.plan.predicted_peak_bytes is not None else (Absent("peak_bytes", "there is no compiler's plan"),)
    return VariantRow(
        name,
        title,
        compile_s=seen.build_s,
        temp_bytes=seen.plan.temp_bytes,
        peak_bytes=seen.plan.predicted_peak_bytes,
        observed_bytes=seen.observed_bytes,
        flops=seen.flops,
        errors=seen.errors,
        absent=(*build, *plan, *seen.absent),
    )


def failed_row(name: str, title: str, failure: Failure) -> VariantRow:
    reason = f"{failure.kind.replace('_', ' ')} in {failure.stage}: {failure.message}"
    return refused_row(name, title, "failed", reason)


def refused_row(name: str, title: str, status: Status, reason: str) -> VariantRow:
    return VariantRow(name, title, status, reason, sentence=reason, absent=(Absent("comparison", reason),))


def wrongness(tolerance: float | None, seen: Observation, baseline: Observation) -> str:
    """Why the results are wrong; empty where they are not. The baseline's own error is no fault of a variant.

    Args:
        tolerance: permitted relative error; None: that of the outputs' own dtype.
    """
    found, own = seen.errors, baseline.errors or Errors("baseline", 0.0, 0.0)
    if found is None:
        return ""
    leaf = f" of leaf {found.worst}" if found.worst else ""
    where = "the run in float64" if found.reference == "float64" else "the baseline"
    if found.overflows > own.overflows:
        return f"{found.overflows} values{leaf} are infinite where {where} has finite ones"
    if found.nans > own.nans:
        return f"{found.nans} values{leaf} are NaN where {where} has numbers"
    permitted = seen.bound if tolerance is None else tolerance
    if found.max_rel is not None and found.max_rel > max(permitted, own.max_rel or 0.0):
        share = f"off by {percent(found.max_rel)} of the largest value{leaf} in {where}"
        return f"{share}; permitted is {percent(permitted)}"
    return ""


def wrong(row: VariantRow, why: str) -> VariantRow:
    absent = Absent("comparison", "a wrong result is not timed")
    return replace(row, status="wrong_result", reason=why, sentence=why, absent=(*row.absent, absent))


def same_program(row: VariantRow) -> VariantRow:
    absent = Absent("comparison", "the compiled program is that of the baseline")
    return replace(row, reason="same program", sentence=SAME_PROGRAM, absent=(*row.absent, absent))


def add_comparison(row: VariantRow, comparison: Comparison, baseline: VariantRow) -> VariantRow:
    """With its verdict, or why there is none."""
    kept = tuple(remark for remark in comparison.remarks if remark.code not in COMPARED_ELSEWHERE)
    comparison = replace(comparison, remarks=kept, numerics=None)
    if comparison.failure is not None:
        failed = failed_row(row.name, row.title, comparison.failure)
        return replace(row, status="failed", reason=failed.reason, sentence=failed.sentence, comparison=comparison)
    row = replace(row, comparison=comparison)
    return replace(row, sentence=sentence(row, baseline))


def sentence(row: VariantRow, baseline: VariantRow) -> str:
    """saves 64.0 MiB and 3.8 ms (1.31×, 1.28 – 1.35); equal results"""
    memory = _memory(row.peak_bytes, baseline.peak_bytes)
    time, is_plain = _time(row.comparison)
    gained = [text for text in (memory, time) if text.startswith("saves")]
    lost = [text for text in (memory, time) if text.startswith("costs")]
    parts = [" and ".join([gained[0], *(text.removeprefix("saves ") for text in gained[1:])])] if gained else []
    parts += [" and ".join([lost[0], *(text.removeprefix("costs ") for text in lost[1:])])] if lost else []
    parts += [time] if is_plain else []
    return "; ".join(filter(None, (*parts, _results(row.errors, baseline.errors))))


def _memory(now: int | None, before: int | None) -> str:
    if now is None or before is None or now == before:
        return ""
    return f"saves {size(before - now)}" if now < before else f"costs {size(now - before)}"


def _time(c: Comparison | None) -> tuple[str, bool]:
    """(what happened to the run time, is it neither gain nor loss?)"""
    if c is None or c.verdict == "unclear" or c.baseline_value is None or c.ratio is None:
        return f"time unclear{f': {c.why}' if c and c.why else ''}", True
    if c.verdict == "same":
        return f"as fast as before{f' ({c.why})' if c.why else ''}", True
    return f"{'saves' if c.verdict == 'faster' else 'costs'} {seconds(abs(saved_s(c, c.ratio)))} ({speedup(c)})", False


def saved_s(c: Comparison, ratio: float) -> float:
    """Seconds of a call that a ratio means, of the baseline's median."""
    return (c.baseline_value or 0.0) * (1 - ratio)


def speedup(c: Comparison) -> str:
    """1.31×, 1.28 – 1.35"""
    if not c.ratio:
        return ""
    around = f", {number(1 / c.high)} – {number(1 / c.low)}" if c.low and c.high else ""
    return f"{number(1 / c.ratio)}×{around}"


def _results(now: Errors | None, before: Errors | None) -> str:
    if now is None or before is None or now.max_rel is None or before.max_rel is None:
        return ""
    if (now.max_rel, now.median_rel) == (before.max_rel, before.median_rel):
        return "equal results"
    return f"errors up to {scientific(now.max_rel)} of the largest value (before: {scientific(before.max_rel)})"


def scientific(value: float) -> str:
    """3.5e-4; 0"""
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0"


def contribution(name: str, comparison: Comparison | None, everything: VariantRow, without: VariantRow) -> Contribution:
    """What is lost without one variant. `comparison`: the others against all."""
    both = None not in (everything.peak_bytes, without.peak_bytes)
    saved_bytes = (without.peak_bytes or 0) - (everything.peak_bytes or 0) if both else None
    if comparison is None or comparison.ratio is None:
        why = comparison.why if comparison else without.reason or without.sentence
        memory = _memory(everything.peak_bytes, without.peak_bytes)
        return Contribution(
            name, comparison, None, saved_bytes=saved_bytes, sentence="; ".join(filter(None, (memory, why)))
        )
    middle, low, high = (
        None if ratio is None else -saved_s(comparison, ratio)
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
