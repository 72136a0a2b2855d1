"""The gate: which changes exceed their limit, and the exit code.

    --fail-slower 5%                        run times
    --fail-slower run=5%,peak=0,compile=20%+50ms

    [tool.benchax.gate]                     the same in pyproject.toml
    run = "5%"
    peak = "64KiB"
    missing = "fail"                        new, missing, failed, differs, unclear: "ignore" or "fail"

    [tool.benchax.gate.cases."matmul*"]     for some cases; the last pattern wins, metric by metric
    run = "10%"

A limit is a share of the baseline, an absolute amount, or both ("5%+20us": both must be exceeded). Only confirmed
changes count. An unclear comparison fails only if you request it, or if a limit judged no case at all. Then nothing was
checked, and "fine" would claim too much.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, cast

from benchax.errors import UsageError, one_of
from benchax.model import METRICS, CaseId, Comparison, Metric
from benchax.options import GATE, project_table
from benchax.units import count, parse_seconds, parse_size, percent, read_share, seconds, size

FINE, SLOWER, ERROR, UNCLEAR = 0, 1, 2, 3
"""Exit codes."""

Event = Literal["new", "missing", "failed", "differs", "unclear"]
DEFAULT_EVENTS: dict[Event, bool | None] = {
    "new": False, "missing": False, "failed": True, "differs": True, "unclear": None,
}  # fmt: skip
"""Whether each fails. None, of "unclear": only if a limit judged no case."""
_CODES: dict[Event, int] = {
    "new": SLOWER, "missing": SLOWER, "failed": ERROR, "differs": SLOWER, "unclear": UNCLEAR,
}  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """The largest allowed excess of the candidate over the baseline. A change must exceed both bounds; None is no
    bound.
    """

    relative: float | None = None
    absolute: float | None = None
    """In the metric's unit."""

    def is_exceeded(self, before: float, after: float) -> bool:
        is_more = self.relative is None or after > before * (1 + self.relative)
        return after > before and is_more and (self.absolute is None or after - before > self.absolute)


@dataclass(frozen=True)
class Gate:
    """Limits by metric and by case, and the events that fail. Without limits, no change is an alarm."""

    limits: Mapping[Metric, Limit] = field(default_factory=dict[Metric, Limit])
    events: Mapping[Event, bool | None] = field(default_factory=lambda: dict(DEFAULT_EVENTS))
    """Whether each of them fails, as in `DEFAULT_EVENTS`."""
    cases: Sequence[tuple[str, Mapping[Metric, Limit]]] = ()
    """Patterns of labels, with the limits that replace `limits` for these cases."""

    def limits_of(self, case: CaseId) -> dict[Metric, Limit]:
        """The limits of one case, by metric."""
        found = dict(self.limits)
        for pattern, limits in self.cases:
            # Labels have brackets around their parameters, which fnmatch would read as a set of letters.
            if fnmatchcase(case.label, pattern.replace("[", "[[]")) or pattern == case.name:
                found |= limits
        return found

    def has_limit(self, metric: Metric) -> bool:
        """Whether any case has a limit for this metric."""
        return metric in self.limits or any(metric in limits for _, limits in self.cases)

    def alarms(self, comparisons: Iterable[Comparison]) -> list[tuple[Comparison, Limit]]:
        """The comparisons with the verdict slower (or greater) that exceed their limit, with this limit."""
        found: list[tuple[Comparison, Limit]] = []
        for c in comparisons:
            limit = self.limits_of(c.case).get(c.metric)
            before, after = c.baseline_value, c.candidate_value
            if limit is None or c.verdict != "slower" or before is None or after is None:
                continue
            # For times, the ratio of pairs is far more precise than either median.
            if limit.is_exceeded(before, before * c.ratio if c.ratio and c.method != "counted" else after):
                found.append((c, limit))
        return found

    def unjudged(
        self, comparisons: Sequence[Comparison], new: Sequence[CaseId] = (), missing: Sequence[CaseId] = ()
    ) -> list[Metric]:
        """The metrics whose limit judged no case.

        It judges no case that is unclear, failed, known of one version only, or "same" within more than the limit.
        """
        cases = [*(c.case for c in comparisons), *new, *missing]
        limited = {metric for case in cases for metric in self.limits_of(case)}
        judged = {
            metric
            for c in comparisons
            if c.verdict != "unclear"
            for metric, limit in self.limits_of(c.case).items()
            # If the program did not change, one comparison reports "same" for every metric.
            if c.method == "same program" or (c.metric == metric and not _covers(c, limit))
        }
        return [metric for metric in METRICS if metric in limited - judged]

    def exit_code(
        self, comparisons: Sequence[Comparison], new: Sequence[CaseId] = (), missing: Sequence[CaseId] = ()
    ) -> int:
        """The most serious one: an error, then a regression or another result, then an unclear verdict."""
        unclear = [c for c in comparisons if c.verdict == "unclear" and not c.failure]
        happened: dict[Event, bool] = {
            "new": bool(new),
            "missing": bool(missing),
            "failed": any(c.failure for c in comparisons),
            "differs": any(c.differs for c in comparisons),
            "unclear": any(c.metric in (self.limits_of(c.case) or ("run",)) for c in unclear),
        }
        codes = {_CODES[event] for event, is_so in happened.items() if is_so and self.events[event]}
        codes |= {SLOWER} if self.alarms(comparisons) else set()
        if self.events["unclear"] is not False and self.unjudged(comparisons, new, missing):
            codes.add(UNCLEAR)
        return next((code for code in (ERROR, SLOWER, UNCLEAR) if code in codes), FINE)


def _covers(comparison: Comparison, limit: Limit) -> bool:
    """Could a change above the limit hide behind the verdict "same"?"""
    before, high = comparison.baseline_value, comparison.high
    if comparison.verdict != "same" or before is None or high is None:
        return False
    return limit.is_exceeded(before, before * high)


def describe_alarm(comparison: Comparison, limit: Limit) -> str:
    """run +12 % (limit 5 %)"""
    before, after = comparison.baseline_value or 0.0, comparison.candidate_value or 0.0
    grown = f"{amount(before, comparison.metric)} to {amount(after, comparison.metric)}"
    if comparison.method != "counted" and comparison.ratio:
        grown = f"+{percent(comparison.ratio - 1)}"
    return f"{comparison.metric} {grown} (limit {limit_text(limit, comparison.metric)})"


def amount(value: float, metric: Metric) -> str:
    """A value with the unit of `metric`."""
    unit = METRICS[metric]
    return seconds(value) if unit == "s" else size(value) if unit == "B" else count(value, unit)


def limit_text(limit: Limit, metric: Metric) -> str:
    parts = [] if limit.relative is None else [f"{100 * limit.relative:g} %"]
    parts += [] if limit.absolute is None else [amount(limit.absolute, metric)]
    return " + ".join(parts)


# ---- reading ----------------------------------------------------------------------------------------------------


def parse(text: str) -> dict[Metric, Limit]:
    """Reads "5%" or "run=5%,peak=0".

    Raises:
        UsageError: an unknown metric, or an invalid limit.
    """
    parts = [part.partition("=") for part in text.split(",")]
    return _limits({name.strip() if equals else "run": value if equals else name for name, equals, value in parts})


_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_AMOUNTS: dict[str, tuple[Callable[[str], float], str]] = {
    "s": (parse_seconds, "5%, 20us or 5%+20us"),
    "B": (parse_size, "5%, 64KiB, 5%+64KiB, or 0 for any"),
    "FLOP": (float, "5% or 1000"),
}
"""By unit: what reads an amount, and examples of limits."""


def limit_of(text: object, metric: Metric) -> Limit:
    """Reads "5%", "20us", or "5%+20us"; 0 means that any increase exceeds it.

    Raises:
        UsageError: anything else.
    """
    read, example = _AMOUNTS[METRICS[metric]]
    found: dict[str, float] = {}
    for part in map(str.strip, str(text).split("+")):
        if _NUMBER.fullmatch(part) and METRICS[metric] == "s" and float(part):
            raise UsageError(f"the limit {text!r} for {metric} has no unit", example, f"{part}% or {part}ms")
        kind = "relative" if part.endswith("%") else "absolute"
        try:
            value = read_share(part) if kind == "relative" else read(part)
        except (UsageError, ValueError):
            value = math.nan
        if kind in found or part.startswith("-") or not 0 <= value < math.inf:
            raise UsageError(f"invalid limit {text!r} for {metric}", example)
        found[kind] = value
    return Limit(**found)


def _metric(name: str) -> Metric:
    if name not in METRICS:
        raise UsageError(f"unknown metric {name!r}", one_of(METRICS, name))
    return cast("Metric", name)


def gate_of(command_line: str | None, project: Path, events: Mapping[Event, bool] | None = None) -> Gate:
    """The gate of the command line, or else of `[tool.benchax.gate]` in the nearest pyproject.toml.

    Limits of the command line replace those of the file, for all cases.

    Raises:
        UsageError: one of them is invalid; names the file.
    """
    path, options = project_table(project)
    try:
        written = _gate(_table(options.get(GATE, {}), "the gate"))
    except UsageError as error:
        raise UsageError(f"[tool.benchax.gate] of {path}: {error.problem}", error.expected, error.hint) from None
    if command_line is not None:
        written = replace(written, limits=parse(command_line), cases=())
    return replace(written, events={**written.events, **(events or {})})


def _gate(table: Mapping[str, Any]) -> Gate:
    events = dict(DEFAULT_EVENTS)
    for name, value in table.items():
        if name in DEFAULT_EVENTS:
            if value not in ("ignore", "fail"):
                raise UsageError(f"invalid value {value!r} for {name}", "one of: ignore, fail")
            events[cast("Event", name)] = value == "fail"
        elif name not in METRICS and name != "cases":
            raise UsageError(f"unknown key {name!r}", one_of([*METRICS, *DEFAULT_EVENTS, "cases"], name))
    patterns = _table(table.get("cases", {}), "cases")
    cases = [(pattern, _limits(_table(each, f"cases.{pattern}"))) for pattern, each in patterns.items()]
    limits = _limits({name: value for name, value in table.items() if name in METRICS})
    return Gate(limits, events, tuple(cases))


def _limits(table: Mapping[str, Any]) -> dict[Metric, Limit]:
    return {_metric(name): limit_of(value, _metric(name)) for name, value in table.items()}


def _table(value: Any, name: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UsageError(f"{name} is {value!r}", "a table, such as [tool.benchax.gate]")
    return cast("Mapping[str, Any]", value)
