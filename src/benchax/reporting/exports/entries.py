"""The common part of all exports: which numbers of a case benchax exports, and under which names.

An unreliable number becomes None. Examples are times of a case that failed, a "compile time" without a compilation, and
operations of a program with loops. Another example is a reading that is not a time. A reading is not a time if it is
not finite or not above the clock's own cost. Formats omit values that are `None`, and never write a 0 instead.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from benchax.errors import UsageError, one_of
from benchax.model import CaseId, Comparison, Measurement, Opaque, Samples
from benchax.reporting.measurement import describe_devices
from benchax.stats.summary import Summary
from benchax.store.schema import case_key

LEAST_S, GREATEST_S = 1e-18, 1e18
"""No clock reads less than an attosecond, or more than the age of the universe; in between no unit overflows."""


@dataclass(frozen=True)
class ExportedCase:
    """A case in the form that exports use."""

    label: str
    """Its own in this file."""
    m: Measurement
    samples: Samples | None
    """The samples of the timer asked for, in the first process; None where it has no times."""
    why: str = ""
    """Why it has no times."""
    comparisons: tuple[Comparison, ...] = ()

    @cached_property
    def summary(self) -> Summary | None:
        """Over all processes of that timer."""
        return self.m.find_summary(self.samples.timer) if self.samples else None

    @property
    def compile_s(self) -> float | None:
        """None where it was read from a cache, too."""
        stages = self.m.stages
        is_one = stages.compile_s is not None and _is_time(stages.compile_s)
        return stages.compile_s if is_one and not self.m.failure and stages.cache not in ("hit", "warm") else None

    @property
    def counted(self) -> dict[str, float]:
        """Bytes and operations that are known, by names that say their unit."""
        if self.m.failure:
            return {}
        memory, cost = self.m.memory, self.m.cost
        found = {
            "observed_peak_bytes": memory.observed_peak_bytes,
            "predicted_peak_bytes": memory.predicted_peak_bytes,
            "constant_bytes": memory.constant_bytes,
            # XLA counts the body of a loop once, however often it runs.
            "flops": cost.flops if cost and not cost.has_loops else None,
        }
        return {name: value for name, value in found.items() if value is not None and math.isfinite(value)}

    @property
    def rates(self) -> dict[str, float]:
        """Returns the work per second at the median of the requested timer, by names with the unit: tokens_per_s."""
        found = self.m.rates(self.samples.timer) if self.samples else ()
        return {f"{rate.what}_per_s": rate.per_s for rate in found if math.isfinite(rate.per_s)}

    @property
    def run(self) -> Comparison | None:
        """The comparison of run times."""
        return next((c for c in self.comparisons if c.metric == "run"), None)

    @property
    def detail(self) -> str:
        """median of 812 samples of 4 calls by wall: latency a caller sees"""
        s = self.samples
        if s is None:
            return f"not measured, because {self.why}"
        calls = f" of {s.iterations} calls" if s.iterations != 1 else ""
        answers = f": {s.answers}" if s.answers else ""
        series = self.m.series_of(s.timer)
        processes = f" in {len(series)} processes" if len(series) > 1 else ""
        return (
            f"median of {sum(len(each.elapsed_s) for each in series)} samples{calls}{processes} by {s.timer}{answers}"
        )


def entries(
    measurements: Sequence[Measurement], comparisons: Sequence[Comparison] = (), timer: str | None = None
) -> list[ExportedCase]:
    """One for each measurement, in their order, with the comparisons of its case.

    Args:
        timer: whose times; default: of each measurement the headline.

    Raises:
        UsageError: no measurement has samples of `timer`.
    """
    known = {s.timer for m in measurements for s in m.samples}
    if timer is not None and timer not in known:
        raise UsageError(
            f"no case was timed by {timer!r}", one_of(known, timer) if known else "no --timer: nothing was timed"
        )
    labels = unique([m.case for m in measurements])
    labels = [
        label + (f" ({describe_devices(m.devices)})" if m.devices and m.devices.is_fake else "")
        for label, m in zip(labels, measurements, strict=True)
    ]
    return [
        ExportedCase(label, m, *_times(m, timer), tuple(c for c in comparisons if c.case == m.case))
        for label, m in zip(labels, measurements, strict=True)
    ]


def unique(cases: Sequence[CaseId]) -> list[str]:
    """Labels, where need be with digits of the identity: n=1 and n="1" read the same, and readers go by the name."""
    plain = [case.label or "(no name)" for case in cases]
    often = Counter(plain)
    return [
        f"{label} ~{case_key(case)[:8]}" if often[label] > 1 else label
        for label, case in zip(plain, cases, strict=True)
    ]


def _times(m: Measurement, timer: str | None) -> tuple[Samples | None, str]:
    if m.failure is not None:
        return None, f"it ended with {m.failure.kind.replace('_', ' ')} in {m.failure.stage}: {m.failure.message}"
    samples = m.samples_of(timer) if timer else m.headline
    if samples is None or not samples.elapsed_s:
        what = f"samples.{timer}" if timer else "samples"
        absent = [a.why for a in m.not_measured if a.what.startswith(what)]
        return None, m.why_absent(what) or (absent[0] if absent else f"it was not timed by {timer or 'any timer'}")
    series = m.series_of(samples.timer)  # of each process: one without times would be a part of the summary
    if not all(s.iterations > 0 and s.elapsed_s and all(map(_is_time, s.per_call_s)) for s in series):
        return None, f"the readings of {samples.timer} are no times"
    if min(min(sum(s.per_call_s), s.summary.median_s) for s in series) < LEAST_S:
        return None, f"the readings of {samples.timer} are not above the clock's own cost"
    return samples, ""


def _is_time(seconds: float) -> bool:
    """Returns whether a number is a time. NaN is not a time. A number below 0 can be one, because the timer's cost was
    subtracted."""
    return -GREATEST_S < seconds < GREATEST_S


def is_alarm(c: Comparison) -> bool:
    """Takes longer, and not taken back by the second measurement. Some bytes more are no failure: how many are too
    many is for the gate to say."""
    return c.method != "counted" and c.verdict == "slower" and c.confirmed is not False


def common_environment(measurements: Sequence[Measurement]) -> dict[str, Any]:
    """Returns the facts that are the same for all, by the names of `Environment`. A file states once where it was
    measured, so this must hold for every row. Unknown facts are omitted."""
    if not measurements:
        return {}
    first = measurements[0].environment
    facts = {f.name: getattr(first, f.name) for f in dataclasses.fields(first)}
    return {
        name: value
        for name, value in facts.items()
        if value is not None and all(getattr(m.environment, name) == value for m in measurements)
    }


def plain(value: Any) -> Any:
    """A parameter as strict JSON: what JSON has no word for, as text."""
    if isinstance(value, Opaque):
        return value.text
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return [plain(v) for v in value] if isinstance(value, tuple) else value  # pyright: ignore[reportUnknownVariableType]


def drop_unknown(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Removes the facts whose value is None."""
    return {name: value for name, value in facts.items() if value is not None}


def nanoseconds(seconds: float) -> float:
    """To the femtosecond: 392.0, where the product of floats is 391.99999999999994."""
    return round(1e9 * seconds, 6)


def strict_json(document: Any, indent: int | None = 2) -> str:
    """In ASCII. A NaN or an infinity is a mistake of ours and raises ValueError.

    Args:
        indent: None where there may be many readings, each of which would be a line.
    """
    return json.dumps(document, indent=indent, allow_nan=False) + "\n"
