"""Makes a row with a sentence from the observation of a variant and its comparison, and selects variants to compare.

A variant that failed, is wrong, or is the same program as the baseline is not timed: its row says so. This module knows
no variant by name, so that variants can import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchax.case import Case
from benchax.experiments.lab import BASELINE, Lab
from benchax.experiments.pair_timing import Pair
from benchax.experiments.study import Observation, Study, StudySide
from benchax.experiments.variant import ChangedCase
from benchax.model import Absent, Comparison, Failure
from benchax.results.experiment import Errors, Status, VariantRow
from benchax.units import number, percent, seconds, size

SAME_PROGRAM = "does nothing here: the compiled program is the same"
BASELINE_OF_GROUP = "the others are compared with it"
LOOPS_COUNT_ONCE = Absent("flops", "XLA counts the body of a loop once")
ROUNDINGS = 4.0
"""Errors in a lower precision may be so many times those that rounding the inputs makes alone: what is between is
rounded as well."""
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
    """Returns why the results are wrong, or an empty text if they are right. The baseline's own error does not count
    against a variant.

    Args:
        tolerance: permitted relative error; None: the tolerance of the outputs' own dtype.
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
    # Where a function is so sensitive that rounding its inputs moves its results, nothing in that precision is right.
    permitted = max(permitted, ROUNDINGS * (seen.rounding_rel or 0.0))
    # A function that is off by 1 % itself does not become wrong in bf16.
    if found.max_rel is not None and found.max_rel > max(permitted, own.max_rel or 0.0):
        share = f"off by {percent(found.max_rel)} of the largest value{leaf} in {where}"
        return f"{share}; permitted is {percent(permitted)}"
    return ""


def wrong_row(row: VariantRow, why: str) -> VariantRow:
    absent = Absent("comparison", "a wrong result is not timed")
    return replace(row, status="wrong_result", reason=why, sentence=why, absent=(*row.absent, absent))


def same_program_row(row: VariantRow) -> VariantRow:
    absent = Absent("comparison", "the compiled program is that of the baseline")
    return replace(row, reason="same program", sentence=SAME_PROGRAM, absent=(*row.absent, absent))


def add_comparison(row: VariantRow, comparison: Comparison, baseline: VariantRow) -> VariantRow:
    """Adds the verdict, or the reason why there is no verdict. A result that differs, and has no errors to judge it by,
    is wrong."""
    if comparison.differs and comparison.numerics and row.errors is None:
        return wrong_row(row, comparison.numerics.why)
    kept = tuple(remark for remark in comparison.remarks if remark.code not in COMPARED_ELSEWHERE)
    comparison = replace(comparison, remarks=kept, numerics=None)
    if comparison.failure is not None:
        failed = failed_row(row.name, row.title, comparison.failure)
        return replace(row, status="failed", reason=failed.reason, sentence=failed.sentence, comparison=comparison)
    row = replace(row, comparison=comparison)
    return replace(row, sentence=sentence(row, baseline))


def sentence(row: VariantRow, baseline: VariantRow) -> str:
    """saves 64.0 MiB and 3.8 ms (1.31×, 1.28 – 1.35); equal results"""
    memory = memory_change(row.peak_bytes, baseline.peak_bytes)
    time, is_plain = _time(row.comparison)
    gained = [text for text in (memory, time) if text.startswith("saves")]
    lost = [text for text in (memory, time) if text.startswith("costs")]
    parts = [" and ".join([gained[0], *(text.removeprefix("saves ") for text in gained[1:])])] if gained else []
    parts += [" and ".join([lost[0], *(text.removeprefix("costs ") for text in lost[1:])])] if lost else []
    parts += [time] if is_plain else []
    return "; ".join(filter(None, (*parts, _results(row.errors, baseline.errors))))


def memory_change(now: int | None, before: int | None) -> str:
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


# ---- several rows ---------------------------------------------------------------------------------------------------


def judge_variants(
    case: Case,
    titles: Mapping[str, str],
    changed: Mapping[str, ChangedCase],
    looked: Study,
    baseline: VariantRow,
    lab: Lab,
) -> dict[str, VariantRow]:
    """Returns the rows of the studied variants. It times the variants that are another program with right results."""
    rows: dict[str, VariantRow] = {}
    own = looked.seen[BASELINE]
    for name, one in changed.items():
        title = titles[name]
        if name in looked.failures:
            rows[name] = failed_row(name, title, looked.failures[name])
            continue
        seen = looked.seen[name]
        row = seen_row(name, title, seen)
        if why := wrongness(one.tolerance, seen, own):
            row = wrong_row(row, why)
        elif seen.is_same_program(own):
            row = same_program_row(row)
        rows[name] = row
    # A wrong result is the fastest one, and the same program takes the same time: neither is timed.
    due = [name for name, row in rows.items() if row.status == "ok" and not row.sentence]
    pairs = [Pair(name, BASELINE, case, name, changed[name].case, changed[name].settings) for name in due]
    for name, comparison in lab.time_pairs(pairs).items():
        rows[name] = add_comparison(rows[name], comparison, baseline)
    return {name: _with_facts(row, changed[name], looked) for name, row in rows.items()}


def _with_facts(row: VariantRow, changed: ChangedCase, looked: Study) -> VariantRow:
    if row.name not in looked.seen:
        return row
    own, facts = looked.seen[BASELINE], list(row.facts)
    if changed.facts is not None:
        facts += changed.facts(own, looked.seen[row.name], row.comparison)
    seen = looked.seen[row.name]
    if seen.rounding_rel is not None and seen.rounding_rel > (changed.tolerance or seen.bound) / ROUNDINGS:
        moved = f"rounding the inputs alone moves the results of a run in float64 by {percent(seen.rounding_rel)}"
        facts.append(("sensitive", moved))
    beside = looked.seen.get(f"{BASELINE} beside {row.name}")
    if beside is not None and beside.digest != own.digest:
        listed = ", ".join(f"{name}={value}" for name, value in changed.settings.items())
        facts.append(("timed beside", f"the baseline under {listed}, which makes another program of it"))
    return replace(row, facts=tuple(facts))


@dataclass(frozen=True)
class Candidate:
    """A case that is compared with the baseline of its group."""

    name: str
    title: str
    changed: ChangedCase
    has_loop: bool = False
    """The variant made a loop in it, so XLA's count of operations is not usable."""


def measure_baseline_group(
    name: str, title: str, case: Case, candidates: Sequence[Candidate], lab: Lab
) -> tuple[VariantRow, ...]:
    """A row of `case`, which is the baseline here, and one of each candidate, compared with it."""
    changed = {one.name: one.changed for one in candidates}
    found = lab.study([StudySide(BASELINE, case), *(one.as_side(key) for key, one in changed.items())])
    if BASELINE in found.failures:
        return (failed_row(name, title, found.failures[BASELINE]),)
    baseline = as_baseline_row(seen_row(name, title, found.seen[BASELINE]), title)
    rows = judge_variants(case, {one.name: one.title for one in candidates}, changed, found, baseline, lab)
    return (baseline, *(without_flops(rows[one.name]) if one.has_loop else rows[one.name] for one in candidates))


def as_baseline_row(row: VariantRow, sentence: str) -> VariantRow:
    """Returns the row that the others of a group are compared with. It has no comparison itself, and gives the
    reason."""
    absent = (*row.absent, Absent("comparison", BASELINE_OF_GROUP))
    return replace(row, reason=BASELINE_OF_GROUP, sentence=sentence, absent=absent)


def without_flops(row: VariantRow) -> VariantRow:
    """The row of a program with a loop: XLA counts the body once, so that the rows could not be compared."""
    return row if row.flops is None else replace(row, flops=None, absent=(*row.absent, LOOPS_COUNT_ONCE))
