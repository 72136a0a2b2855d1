"""From samples that were taken in pairs, and from counts, to comparisons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from benchax.comparing.witness import Testimony, testify
from benchax.model import Block, CaseId, Comparison, Environment, Failure, Method, Metric, Numerics, Remark, Version
from benchax.stats.ratios import Ratio, ratio_of
from benchax.stats.verdicts import ALPHA, SAME_WITHIN, Verdict, least_change, verdict
from benchax.units import percent

SAME_PROGRAM = "the same program: nothing was timed"
BUILD_LEAST_CHANGE, BUILD_SAME_WITHIN = 0.05, 0.20
"""Compiling is timed once in a block."""


@dataclass(frozen=True)
class ComparisonContext:
    """What is compared: all that the comparisons of two versions of a case have in common."""

    case: CaseId
    baseline: Version
    candidate: Version
    method: Method = "one process"
    numerics: Numerics | None = None
    remarks: tuple[Remark, ...] = ()
    environment: Environment | None = None
    compared_at: str = ""
    resolution: float = SAME_WITHIN
    """ "same" means within this share, of run times."""

    def comparison(self, metric: Metric, verdict: Verdict, why: str = "") -> Comparison:
        return Comparison(
            self.case, metric, self.baseline, self.candidate, verdict, why,
            method=self.method, numerics=self.numerics, remarks=self.remarks,
            environment=self.environment, compared_at=self.compared_at, resolution=self.resolution,
        )  # fmt: skip


@dataclass
class ComparisonEvidence:
    """What has been seen of two versions so far."""

    run: list[Block] = field(default_factory=list[Block])
    build: list[Block] = field(default_factory=list[Block])
    """One pair in each."""
    counts: dict[Metric, tuple[float | None, float | None]] = field(default_factory=dict)
    """Of the compiled programs: baseline, candidate."""
    failure: Failure | None = None
    is_same_program: bool = False
    """Both programs are one, so that nothing was timed."""


def judge_times(
    context: ComparisonContext, metric: Metric, blocks: Sequence[Block], alpha: float = ALPHA
) -> Comparison:
    """Run times, or times to build."""
    if not blocks:
        return context.comparison(metric, "unclear", "nothing was timed")
    within = context.resolution if metric == "run" else BUILD_SAME_WITHIN
    least = least_change(within) if metric == "run" else BUILD_LEAST_CHANGE
    ratio = ratio_of([block.log_ratios for block in blocks], alpha)
    found = verdict(ratio, least_change=least, same_within=within)
    baseline_s = median([s for block in blocks for s in block.baseline_s])
    comparison = replace(
        context.comparison(metric, found, _why(ratio, found, within)),
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        smallest_effect=ratio.smallest_effect if 0 < ratio.smallest_effect < math.inf else None,
        baseline_value=baseline_s,
        candidate_value=baseline_s * ratio.ratio,
        blocks=tuple(blocks),
    )
    if metric != "run" or found != "unclear":
        return comparison
    heard = testify(blocks, ratio, alpha, within, context.environment)
    return comparison if heard is None else _by_witness(comparison, heard)


def _by_witness(unclear: Comparison, heard: Testimony) -> Comparison:
    """`unclear` with what the processor time says; decided by it where it may decide."""
    cpu = heard.ratio
    found = replace(unclear, cpu_ratio=cpu.ratio, cpu_low=cpu.low, cpu_high=cpu.high)
    around = f" ({_signed(cpu.low)} to {_signed(cpu.high)})" if cpu.low and cpu.high else ""
    seen = f"CPU time, {_signed(cpu.ratio)}{around}"
    if heard.verdict == "unclear":
        return replace(found, why=f"{found.why}; the {seen}, does not decide")
    within = f"within {percent(found.resolution)} " if heard.verdict == "same" else ""
    return replace(found, verdict=heard.verdict, why=f"{within}by {seen}", is_by_cpu_time=True)


def _signed(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.2g} %"


def _why(ratio: Ratio, found: Verdict, same_within: float) -> str:
    if found == "same":
        return f"within {percent(same_within)}"
    if found != "unclear":
        return ""
    if ratio.low is None or not 0 < ratio.smallest_effect < math.inf:
        return "too few samples for an interval"
    return f"a change below {percent(ratio.smallest_effect)} could have been missed"


def judge_counts(context: ComparisonContext, metric: Metric, before: float | None, after: float | None) -> Comparison:
    """Bytes and operations, which the compiler counts: equal or not."""
    context = replace(context, method="counted")
    if before is None or after is None:
        side = context.baseline if before is None else context.candidate
        return context.comparison(
            metric, "unclear", f"not measured, because the compiler does not say it of {side.label}"
        )
    found: Verdict = "same" if before == after else "slower" if after > before else "faster"
    ratio = after / before if before else None
    return replace(context.comparison(metric, found), ratio=ratio, baseline_value=before, candidate_value=after)


def judge(context: ComparisonContext, evidence: ComparisonEvidence, alpha: float = ALPHA) -> list[Comparison]:
    """One comparison for each metric of which anything is known; of a failure, just one."""
    if evidence.failure is not None:
        why = f"{evidence.failure.kind.replace('_', ' ')} in {evidence.failure.stage}: {evidence.failure.message}"
        return [replace(context.comparison("run", "unclear", why), failure=evidence.failure)]
    if evidence.is_same_program:
        return [replace(context, method="same program").comparison("run", "same", SAME_PROGRAM)]
    found = [judge_times(context, "run", evidence.run, alpha)]
    if evidence.build:
        found.append(judge_times(context, "compile", evidence.build, alpha))
    return found + [judge_counts(context, metric, *counts) for metric, counts in evidence.counts.items()]


def confirm(first: Comparison, second: Comparison) -> Comparison:
    """`first`, by the light of new data: a change that they do not show too is none that can be named."""
    if second.verdict == first.verdict:
        return replace(first, confirmed=True)
    why = f"{first.verdict} at first ({change(first)}), not confirmed ({change(second)})"
    return replace(first, verdict="unclear", why=why, confirmed=False, is_by_cpu_time=False)


def change(comparison: Comparison) -> str:
    """+3.2 %"""
    return "no ratio" if comparison.ratio is None else _signed(comparison.ratio)
