"""Stored results in the formats of other tools, each a function of entries. The folder of asv is in `asv.py`. The page
docs/how-to/exports.md lists for each format the fields that it fills, and the reader that read it.

An entry says which numbers of a case are exported, and under which names. An unreliable number becomes None. Examples
are times of a case that failed, a "compile time" without a compilation, and operations of a program with loops. Another
example is a reading that is not a time. A reading is not a time if it is not finite or not above the clock's own cost.
Formats omit values that are `None`, and never write a 0 instead. They omit what they cannot express, and never make a
value up.

    bencher           Bencher Metric Format (BMF): {benchmark: {measure: {value, lower_value, upper_value}}}
    csv               RFC 4180, UTF-8, with a header: one line per case, times in seconds per call
    github-action     github-action-benchmark with `tool: customSmallerIsBetter`
    google-benchmark  google-benchmark JSON, schema 1, for its `tools/compare.py`
    json              one object with everything: {"measurements": [...], "comparisons": [...]}
    junit             JUnit XML: a case is a test
    markdown          a table in GitHub's Markdown: for a pull request, a job summary, a page of results
    pytest-benchmark  its JSON, which `pytest-benchmark compare` reads
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
import statistics
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from benchax.codec import to_document
from benchax.errors import UsageError, one_of
from benchax.model import CaseId, Comparison, Measurement, Opaque, Samples
from benchax.printable import spell_for_xml
from benchax.reporting.comparisons import interval, sentence, verdict_with_reason
from benchax.reporting.document import Document, Facts, Paragraph, Section, TextRow, tabulate
from benchax.reporting.markdown import render
from benchax.reporting.measurement import describe_devices
from benchax.reporting.tables import CASE, VERDICT, name_device
from benchax.stats.summary import Summary
from benchax.store.schema import case_key
from benchax.units import plural, seconds, seconds_range, size

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
    def numbers(self) -> dict[str, float]:
        """The interval of its time, the time to compile, and all that is counted, by names with their units."""
        s = self.summary
        times = {"low_95_s": s.low_s, "high_95_s": s.high_s} if s else {}
        return drop_unknown(times | {"compile_s": self.compile_s} | self.counted | self.rates)

    @property
    def params(self) -> dict[str, Any]:
        return {key: plain(value) for key, value in self.m.case.params}

    @property
    def status(self) -> str:
        return self.m.failure.kind if self.m.failure else "ok"

    @property
    def run(self) -> Comparison | None:
        """The comparison of run times."""
        return next((c for c in self.comparisons if c.metric == "run"), None)

    @property
    def detail(self) -> str:
        """median of 812 samples of 4 calls by wall: latency a caller sees"""
        if (s := self.samples) is None:
            return f"not measured, because {self.why}"
        calls = f" of {s.iterations} calls" if s.iterations != 1 else ""
        answers = f": {s.answers}" if s.answers else ""
        series = self.m.series_of(s.timer)
        processes = f" in {len(series)} processes" if len(series) > 1 else ""
        samples = plural(sum(len(each.elapsed_s) for each in series), "sample")
        return f"median of {samples}{calls}{processes} by {s.timer}{answers}"


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
    named = zip(unique([m.case for m in measurements]), measurements, strict=True)
    return [
        ExportedCase(
            label + (f" ({describe_devices(m.devices)})" if m.devices and m.devices.is_fake else ""),
            m,
            *_choose_times(m, timer),
            tuple(c for c in comparisons if c.case == m.case),
        )
        for label, m in named
    ]


def unique(cases: Sequence[CaseId]) -> list[str]:
    """Labels, where need be with digits of the identity: n=1 and n="1" read the same, and readers go by the name."""
    often = Counter(case.label for case in cases)
    digits = [f" ~{case_key(case)[:8]}" if often[case.label] > 1 else "" for case in cases]
    return [(case.label or "(no name)") + end for case, end in zip(cases, digits, strict=True)]


def _choose_times(m: Measurement, timer: str | None) -> tuple[Samples | None, str]:
    if m.failure is not None:
        return None, f"it ended with {m.failure.sentence}"
    samples = m.samples_of(timer) if timer else m.headline
    if samples is None or not samples.elapsed_s:
        what = f"samples.{timer}" if timer else "samples"
        absent = [a.why for a in m.not_measured if a.what.startswith(what)]
        return None, m.why_absent(what) or next(iter(absent), f"it was not timed by {timer or 'any timer'}")
    series = m.series_of(samples.timer)  # of each process: one without times would be a part of the summary
    if not all(s.iterations > 0 and s.elapsed_s and all(map(_is_time, s.per_call_s)) for s in series):
        return None, f"the readings of {samples.timer} aren't times"
    if min(min(sum(s.per_call_s), s.summary.median_s) for s in series) < LEAST_S:
        return None, f"the readings of {samples.timer} are not above the clock's own cost"
    return samples, ""


def _is_time(value_s: float) -> bool:
    """Returns whether a number is a time. NaN is not a time. A number below 0 can be one, because the timer's cost was
    subtracted."""
    return -GREATEST_S < value_s < GREATEST_S


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
    # Don't use `vars`, which also has the fingerprint after it was computed.
    facts = {field.name: getattr(first, field.name) for field in dataclasses.fields(first)}
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
    """Removes unknown facts."""
    return {name: value for name, value in facts.items() if value is not None}


def nanoseconds(value_s: float) -> float:
    """To the femtosecond: 392.0, where the product of floats is 391.99999999999994."""
    return round(1e9 * value_s, 6)


def strict_json(document: Any, indent: int | None = 2) -> str:
    """In ASCII. A NaN or an infinity is a mistake of ours and raises ValueError.

    Args:
        indent: None where there may be many readings, each of which would be a line.
    """
    return json.dumps(document, indent=indent, allow_nan=False) + "\n"


LONGEST_NAME = 1024
"""Bytes; Bencher refuses the whole report for a longer one (bencher_valid/src/benchmark_name.rs)."""


def to_bencher(found: Sequence[ExportedCase]) -> str:
    """Bencher Metric Format: {benchmark: {measure: {value, lower_value, upper_value}}}.

    `latency` (nanoseconds) and `build-time` (seconds) are measures that Bencher has by itself; it makes the others at
    first use. A case without any number is left out: the format cannot say why.
    """
    report = {bencher_name(entry.label): measures for entry in found if (measures := _measures(entry))}
    return strict_json(report)


def bencher_name(label: str) -> str:
    """At most LONGEST_NAME bytes; a longer one is cut, and a digest of the whole keeps it apart from others."""
    raw = label.encode()
    if len(raw) <= LONGEST_NAME:
        return label
    digest = f"… ~{hashlib.sha256(raw).hexdigest()[:12]}"
    # Drops a letter that the cut went through.
    return raw[: LONGEST_NAME - len(digest.encode())].decode(errors="ignore") + digest


def _measures(entry: ExportedCase) -> dict[str, Any]:
    s = entry.summary
    times = drop_unknown({"value": s.median_s, "lower_value": s.low_s, "upper_value": s.high_s}) if s else {}
    latency = {name: nanoseconds(value) for name, value in times.items()}
    measures: dict[str, Any] = {"latency": latency} if latency else {}
    others = drop_unknown({"build-time": entry.compile_s}) | entry.rates | entry.counted
    return measures | {what.replace("_", "-"): {"value": value} for what, value in others.items()}


COLUMNS = {
    "name": "m.case.name",
    "params": "params",
    "variant": "m.case.variant",
    "tag": "m.case.tag",
    "run_id": "m.run_id",
    "started_at": "m.started_at",
    "commit": "m.environment.commit",
    "is_dirty": "m.environment.is_dirty",
    "host": "m.environment.host",
    "backend": "m.environment.backend",
    "device_kind": "m.environment.device_kind",
    "jax": "m.environment.jax",
    "fingerprint": "m.environment.fingerprint",
    "signature": "m.signature",
    "status": "status",
    "timer": "samples.timer",
    "n": "summary.n",
    "iterations": "samples.iterations",
    "median_s": "summary.median_s",
    "low_s": "summary.low_s",
    "high_s": "summary.high_s",
    "mean_s": "summary.mean_s",
    "std_s": "summary.std_s",
    "min_s": "summary.min_s",
    "max_s": "summary.max_s",
    "compile_s": "compile_s",
    "observed_peak_bytes": "counted.observed_peak_bytes",
    "predicted_peak_bytes": "counted.predicted_peak_bytes",
    "constant_bytes": "counted.constant_bytes",
    "flops": "counted.flops",
    "baseline": "run.baseline.label",
    "verdict": "run.verdict",
    "ratio": "run.ratio",
    "ratio_low": "run.low",
    "ratio_high": "run.high",
    "why": "why",
    "devices": "m.devices.count",
    "is_fake": "m.devices.is_fake",
    "ranks": "m.ranks.ranks",
}
"""Columns of the CSV, and the place of each value in an entry."""


def to_csv(found: Sequence[ExportedCase]) -> str:
    """CSV (RFC 4180, UTF-8, a header): one line per case, times in seconds per call.

    An empty field was not measured; the column `why` says why it has no times. At the end there is a column for each
    kind of work that any case does: tokens_per_s.
    """
    target = io.StringIO()
    rates = dict.fromkeys(name for entry in found for name in entry.rates if name not in COLUMNS)
    writer = csv.writer(target, lineterminator="\r\n")
    writer.writerow((*COLUMNS, *rates))
    for entry in found:
        values = [_get(entry, path) for path in COLUMNS.values()]
        writer.writerow(map(_field, (*values, *map(entry.rates.get, rates))))
    return target.getvalue()


def _get(entry: ExportedCase, path: str) -> Any:
    """None where a part of the path is not there."""
    found: Any = entry
    for name in path.split("."):
        is_named = isinstance(found, dict)
        found = cast("dict[str, Any]", found).get(name) if is_named else getattr(found, name, None)
    return found


def _field(value: Any) -> Any:
    match value:
        case bool():
            return "true" if value else "false"
        case float():  # with all digits: who reads it again has the same float
            return repr(value)
        case dict():
            return json.dumps(value, ensure_ascii=False, allow_nan=False) if value else ""
        case tuple():
            return len(cast("tuple[Any, ...]", value))
        case _:
            return "" if value is None else value


COUNTED = {
    "observed_peak_bytes": ("peak memory", "B"),
    "predicted_peak_bytes": ("planned peak", "B"),
    "constant_bytes": ("constants", "B"),
    "flops": ("operations", "FLOP"),
}
"""In words, and the unit."""


def to_github_action(found: Sequence[ExportedCase]) -> str:
    """For github-action-benchmark with `tool: customSmallerIsBetter`: an array of {name, value, unit, range, extra}.

    One entry per case and metric. Units never change with the size of a number, since the action plots values as they
    are. Cases without a number are left out: the action takes no entry without a value.
    """
    return strict_json([each for entry in found for each in _metrics(entry)])


def _metrics(entry: ExportedCase) -> Iterator[dict[str, Any]]:
    if s := entry.summary:
        # Not "± x": the interval is not symmetric, and the action would scale x alone when units change.
        ends = seconds_range(s.low_s, s.high_s)
        interval = {"range": f"95 %: {ends}"} if ends else {}
        env = entry.m.environment
        extra = "\n".join(filter(None, (entry.detail, name_device(env), env.jax and f"jax {env.jax}")))
        yield {"name": entry.label, "value": nanoseconds(s.median_s), "unit": "ns", **interval, "extra": extra}
    if entry.compile_s is not None:
        yield {"name": f"{entry.label} · compile", "value": round(1e3 * entry.compile_s, 6), "unit": "ms"}
    for what, value in entry.counted.items():
        words, unit = COUNTED[what]
        yield {"name": f"{entry.label} · {words}", "value": value, "unit": unit}


NOT_MEASURED = math.nan


def to_google_benchmark(found: Sequence[ExportedCase]) -> str:
    """google-benchmark JSON, schema 1, for its `tools/compare.py`.

    Each case is one row, whose `real_time` is the median. The export omits repetitions, because compare.py would test
    samples of one process as if they were independent. CPU time is not measured, and a case that failed has no time at
    all. Both are NaN, as the library itself writes a missing number (json_reporter.cc, FormatKV). So this is the only
    export that is not strict JSON.
    """
    rows = [_row(entry, i) for i, entry in enumerate(found)]
    return json.dumps({"context": _context(found), "benchmarks": rows}, indent=2) + "\n"


def _context(found: Sequence[ExportedCase]) -> dict[str, Any]:
    env = common_environment([entry.m for entry in found])
    facts = ("benchax", "jax", "jaxlib", "backend", "device_kind", "processor", "commit")  # free keys are texts
    context = {
        "date": min((entry.m.started_at for entry in found), default=None),
        "host_name": env.get("host"),
        "executable": "benchax",
        "num_cpus": env.get("cores"),
        "json_schema_version": 1,
        **{name: str(env[name]) for name in facts if name in env},
    }
    return drop_unknown(context)


def _row(entry: ExportedCase, index: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": entry.label,
        "family_index": index,
        "per_family_instance_index": 0,
        "run_name": entry.label,
        "run_type": "iteration",
        "repetitions": 1,
        "repetition_index": 0,
        "threads": 1,
    }
    times: dict[str, Any] = {"iterations": 0, "real_time": NOT_MEASURED}
    if entry.samples is None or entry.summary is None:
        row |= {"error_occurred": True, "error_message": entry.why}
    else:
        calls = sum(each.iterations * len(each.elapsed_s) for each in entry.m.series_of(entry.samples.timer))
        times = {"iterations": calls, "real_time": nanoseconds(entry.summary.median_s)}
    return row | times | {"cpu_time": NOT_MEASURED, "time_unit": "ns", "label": entry.detail} | entry.numbers


def to_json(found: Sequence[ExportedCase]) -> str:
    """One object with everything: {"measurements": [...], "comparisons": [...]}.

    Each is a document as `codec.py` writes it, with every reading; a measurement also has a `summary` of the requested
    times. If there are no such times, the summary is null and `why` gives the reason.
    """
    comparisons = [to_document(c) for entry in found for c in entry.comparisons]
    measurements: list[dict[str, Any]] = []
    for entry in found:
        summary = dataclasses.asdict(entry.summary) if entry.summary else None
        timer = {"timer": entry.samples.timer} if entry.samples else {"why": entry.why}
        measurements.append(to_document(entry.m) | {"label": entry.label, "summary": summary, **timer})
    return strict_json({"measurements": measurements, "comparisons": comparisons}, indent=None)


def to_junit(found: Sequence[ExportedCase]) -> str:
    """JUnit XML: a case is a test.

    A failed one is an <error>, one that was never run is skipped, and one that a comparison calls slower is a
    <failure>. `time` is the median in seconds per call, and is omitted if there is no median. XML 1.0 cannot hold most
    control characters, not even escaped: they are written as \\x1b, and a lone half of a surrogate pair as \\ud800.
    """
    host = common_environment([entry.m for entry in found]).get("host")
    # JUnit's schema has no time zone; ours is UTC.
    started_at = min((entry.m.started_at[:19] for entry in found), default=None)
    about = {name: spell_for_xml(text) for name, text in (("hostname", host), ("timestamp", started_at)) if text}
    cases = [_case(entry) for entry in found]
    tags = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    counts = {name: str(sum(case.find(tag) is not None for case in cases)) for name, tag in tags.items()}
    name, totals = {"name": "benchax"}, {"tests": str(len(cases))} | counts
    root = Element("testsuites", name | totals)
    SubElement(root, "testsuite", name | about | totals).extend(cases)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(entry: ExportedCase) -> Element:
    case = Element("testcase", classname=spell_for_xml(entry.m.case.name), name=spell_for_xml(entry.label))
    if entry.summary:
        # Without an exponent: `time` is a decimal in the schemas of JUnit.
        case.set("time", f"{entry.summary.median_s:.9f}")
    if numbers := ({"median_s": entry.summary.median_s} if entry.summary else {}) | entry.numbers:
        properties = SubElement(case, "properties")
        for name, value in numbers.items():
            SubElement(properties, "property", name=spell_for_xml(name), value=repr(value))
    if failure := entry.m.failure:
        message = spell_for_xml(f"in {failure.stage}: {failure.message}")
        error = SubElement(
            case, "skipped" if failure.kind == "not_run" else "error", type=failure.kind, message=message
        )
        error.text = spell_for_xml("\n".join(filter(None, (failure.advice, failure.traceback))))
    elif said := [sentence(c) for c in entry.comparisons if is_alarm(c)]:
        # One element: the schema has no room for more.
        slower = SubElement(case, "failure", type="slower", message=spell_for_xml(said[0]))
        slower.text = spell_for_xml("\n".join(said))
    elif entry.samples is None:
        SubElement(case, "skipped", message=spell_for_xml(entry.detail))
    SubElement(case, "system-out").text = spell_for_xml("\n".join([entry.detail, *map(sentence, entry.comparisons)]))
    return case


MARKDOWN_COLUMNS = (CASE, "median", "95 % interval", "compile", "peak memory", "planned peak", "change", VERDICT)


def to_markdown(found: Sequence[ExportedCase]) -> str:
    """A table in GitHub's Markdown: for a pull request, a job summary, a page of results."""
    about = [Paragraph(text) for text in [_about(found)] if text]
    why = tuple(TextRow(entry.label, entry.why) for entry in found if entry.why)
    notes = [Facts((Section("", why),), "words")] if why else []
    table = tabulate(MARKDOWN_COLUMNS, map(_line, found)).without_empty_columns(kept=(0, 1))
    return render(Document((table, *about, *notes)))


def _line(entry: ExportedCase) -> tuple[str, ...]:
    missing = entry.m.failure.words if entry.m.failure else "not measured"
    counted = (entry.counted.get(what) for what in ("observed_peak_bytes", "predicted_peak_bytes"))
    s = entry.summary
    return (
        entry.label,
        seconds(s.median_s) if s else missing,
        seconds_range(s.low_s, s.high_s) if s else "",
        seconds(entry.compile_s) if entry.compile_s is not None else "",
        *("" if value is None else size(value) for value in counted),
        interval(entry.run) if entry.run else "",
        verdict_with_reason(entry.run) if entry.run else "",
    )


def _about(found: Sequence[ExportedCase]) -> str:
    """Where all this was measured, and against what."""
    env = common_environment([entry.m for entry in found])
    timers = {entry.samples.timer for entry in found if entry.samples}
    baselines = {entry.run.baseline.label for entry in found if entry.run}
    facts = (
        env.get("backend"),
        env.get("processor" if env.get("backend") == "cpu" else "device_kind"),
        f"jax {env['jax']}" if "jax" in env else "",
        f"commit {env['commit'][:8]}{'+' * bool(env.get('is_dirty'))}" if "commit" in env else "",
        f"times by {', '.join(sorted(timers))}" if timers else "",
        f"change against {', '.join(sorted(baselines))}" if baselines else "",
    )
    return " · ".join(filter(None, facts))


PYTEST_BENCHMARK = "5.3.1"
"""Whose keys are written."""


def to_pytest_benchmark(found: Sequence[ExportedCase]) -> str:
    return strict_json(pytest_benchmark_document(found), indent=None)


def pytest_benchmark_document(found: Sequence[ExportedCase]) -> dict[str, Any]:
    """pytest-benchmark's JSON (keys of 5.3.1), in seconds per call: what `pytest-benchmark compare` reads.

    Every reading is in `stats.data`, and the statistics are computed from them as pytest-benchmark does. Compile time,
    memory, the interval and the timer are in `extra_info`. Cases without times are left out, since the format has no
    row without statistics.
    """
    rows = [entry.m for entry in found if entry.samples]
    env = common_environment(rows)
    machine = {
        "node": env.get("host"),
        "processor": env.get("processor"),
        "system": env.get("os"),
        "python_version": env.get("python"),
        "cpu": drop_unknown({"brand_raw": env.get("processor"), "count": env.get("cores")}),
        **{name: env.get(name) for name in ("benchax", "jax", "jaxlib", "backend", "device_kind")},
    }
    commit = {  # as pytest-benchmark says that it does not know
        "id": env.get("commit", "unknown"),
        "time": None,
        "author_time": None,
        "dirty": env.get("is_dirty"),
        "branch": env.get("branch", "(unknown)"),
    }
    return {
        "machine_info": drop_unknown(machine),
        "commit_info": commit,
        "benchmarks": [_benchmark(entry, entry.samples) for entry in found if entry.samples],
        "datetime": min((m.started_at for m in rows), default=None),
        "version": PYTEST_BENCHMARK,
    }


def _benchmark(entry: ExportedCase, samples: Samples) -> dict[str, Any]:
    m = entry.m
    params = entry.params
    every = [value for each in m.series_of(samples.timer) for value in each.per_call_s]
    # A difference lost in noise is not a time, and readers of the file would show it as the smallest one.
    readings = [value for value in every if value > 0] or every
    left_out = {"readings_not_above_0": len(every) - len(readings)} if len(readings) < len(every) else {}
    return {
        "group": m.case.tag or None,
        "name": entry.label,
        "fullname": entry.label,
        "params": params or None,
        "param": "-".join(map(str, params.values())) if params else None,
        "extra_info": _extra_info(entry) | left_out,
        "options": {"timer": samples.timer, "max_time": plain(m.options.max_time_s)},
        "stats": stats(readings) | {"data": readings, "iterations": samples.iterations},
    }


def _extra_info(entry: ExportedCase) -> dict[str, Any]:
    m, s = entry.m, entry.summary
    facts = {
        "case": m.case.name,
        "variant": m.case.variant or None,
        "signature": m.signature or None,
        "median_low_95_s": s and s.low_s,
        "median_high_95_s": s and s.high_s,
        "compile_s": entry.compile_s,
    }
    where = {"host": m.environment.host, "commit": m.environment.commit, "fingerprint": m.environment.fingerprint}
    return drop_unknown(entry.rates | facts | entry.counted | where)


def stats(values: Sequence[float]) -> dict[str, Any]:
    """pytest-benchmark's statistics (its stats.py) of at least one value. `stddev` of a single one is 0 there."""
    ordered = sorted(values)
    mean, q1, q3 = statistics.mean(ordered), *_quartiles(ordered)
    stddev = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    low, high = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    beyond_fences = sum(not low <= v <= high for v in ordered)
    beyond_stddev = sum(not mean - stddev <= v <= mean + stddev for v in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": beyond_fences,
        "stddev_outliers": beyond_stddev,
        "outliers": f"{beyond_stddev};{beyond_fences}",
        "ld15iqr": ordered[min(bisect_left(ordered, low), len(ordered) - 1)],
        "hd15iqr": ordered[max(bisect_right(ordered, high) - 1, 0)],
        "ops": len(ordered) / sum(ordered),
        "total": sum(ordered),
    }


def _quartiles(ordered: Sequence[float]) -> tuple[float, float]:
    """By pytest-benchmark's own rule: halves without the middle for even counts, method 3 for odd ones."""
    count = len(ordered)
    if count % 2 == 0 or count == 1:
        return statistics.median(ordered[: (count + 1) // 2]), statistics.median(ordered[count // 2 :])
    n, rest = divmod(count, 4)
    low, high = n - (rest == 1), 3 * n + (rest == 3)
    share = 0.25 if rest == 1 else 0.75
    return (
        share * ordered[low] + (1 - share) * ordered[low + 1],
        (1 - share) * ordered[high] + share * ordered[high + 1],
    )


FORMATS: dict[str, Callable[[Sequence[ExportedCase]], str]] = {
    "bencher": to_bencher,
    "csv": to_csv,
    "github-action": to_github_action,
    "google-benchmark": to_google_benchmark,
    "json": to_json,
    "junit": to_junit,
    "markdown": to_markdown,
    "pytest-benchmark": to_pytest_benchmark,
}
ASV = "asv"
"""The one that is a folder of files (`asv.py`)."""
NAMES = (*FORMATS, ASV)


def check_format(name: str) -> None:
    """Raises `UsageError` for a format that does not exist."""
    if name not in NAMES:
        raise UsageError(f"unknown format {name!r}", one_of(NAMES, name))
