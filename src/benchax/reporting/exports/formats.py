"""The formats of other tools, each a function of entries (`entries.py`).

It omits what a format cannot express, and never makes a value up.

    bencher           Bencher Metric Format (BMF): {benchmark: {measure: {value, lower_value, upper_value}}}
    csv               RFC 4180, UTF-8, with a header: one line per case, times in seconds per call
    github-action     github-action-benchmark with `tool: customSmallerIsBetter`
    google-benchmark  google-benchmark JSON, schema 1, for its `tools/compare.py`
    json              one object with everything: {"measurements": [...], "comparisons": [...]}
    junit             JUnit XML: a case is a test
    markdown          a table in GitHub's Markdown: for a pull request, a job summary, a page of results
"""

from __future__ import annotations

import csv
import dataclasses
import hashlib
import io
import json
import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from benchax.codec import encode_comparison, to_document
from benchax.model import Comparison, Failure
from benchax.printable import spell_for_xml
from benchax.reporting.comparisons import interval, sentence, verdict
from benchax.reporting.document import Document, Facts, Paragraph, Section, TextRow, tabulate
from benchax.reporting.exports.entries import (
    ExportedCase,
    common_environment,
    drop_unknown,
    is_alarm,
    nanoseconds,
    plain,
    strict_json,
)
from benchax.reporting.markdown import render
from benchax.reporting.tables import CASE, VERDICT
from benchax.units import seconds, seconds_range, size

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
    # A letter that the cut went through is dropped.
    return raw[: LONGEST_NAME - len(digest.encode())].decode(errors="ignore") + digest


def _measures(entry: ExportedCase) -> dict[str, Any]:
    measures: dict[str, Any] = {}
    if s := entry.summary:
        bounds = {"lower_value": s.low_s, "upper_value": s.high_s}
        measures["latency"] = {k: nanoseconds(v) for k, v in drop_unknown({"value": s.median_s} | bounds).items()}
    if entry.compile_s is not None:
        measures["build-time"] = {"value": entry.compile_s}
    for what, value in (entry.rates | entry.counted).items():
        measures[what.replace("_", "-")] = {"value": value}
    return measures


COLUMNS: tuple[str, ...] = (
    "name", "params", "variant", "tag", "run_id", "started_at", "commit", "is_dirty", "host", "backend",
    "device_kind", "jax", "fingerprint", "signature", "status", "timer", "n", "iterations", "median_s", "low_s",
    "high_s", "mean_s", "std_s", "min_s", "max_s", "compile_s", "observed_peak_bytes", "predicted_peak_bytes",
    "constant_bytes", "flops", "baseline", "verdict", "ratio", "ratio_low", "ratio_high", "why",
    "devices", "is_fake", "ranks",
)  # fmt: skip


def to_csv(found: Sequence[ExportedCase]) -> str:
    """CSV (RFC 4180, UTF-8, a header): one line per case, times in seconds per call.

    An empty field was not measured; the column `why` says why it has no times. At the end there is a column for each
    kind of work that any case does: tokens_per_s.
    """
    target = io.StringIO()
    rates = dict.fromkeys(name for entry in found for name in entry.rates if name not in COLUMNS)
    writer = csv.DictWriter(target, (*COLUMNS, *rates), restval="", lineterminator="\r\n")
    writer.writeheader()
    for entry in found:
        fields = entry.rates | _identity(entry) | _numbers(entry) | _comparison(entry) | {"why": entry.why}
        writer.writerow({name: _field(value) for name, value in fields.items()})
    return target.getvalue()


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    # By repr, with all digits: who reads it again has the same float.
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _identity(entry: ExportedCase) -> dict[str, Any]:
    m, env = entry.m, entry.m.environment
    params = {key: plain(value) for key, value in m.case.params}
    return {
        "name": m.case.name,
        "params": json.dumps(params, ensure_ascii=False, allow_nan=False) if params else None,
        "variant": m.case.variant,
        "tag": m.case.tag,
        "run_id": m.run_id,
        "started_at": m.started_at,
        "commit": env.commit,
        "is_dirty": env.is_dirty,
        "host": env.host,
        "backend": env.backend,
        "device_kind": env.device_kind,
        "jax": env.jax,
        "fingerprint": env.fingerprint,
        "signature": m.signature,
        "status": m.failure.kind if m.failure else "ok",
        "devices": m.devices.count if m.devices else None,
        "is_fake": m.devices.is_fake if m.devices else None,
        "ranks": len(m.ranks.ranks) if m.ranks else None,
    }


def _numbers(entry: ExportedCase) -> dict[str, Any]:
    found: dict[str, Any] = {"compile_s": entry.compile_s} | entry.counted
    if entry.samples and (s := entry.summary):
        found |= {"timer": entry.samples.timer, "n": s.n, "iterations": entry.samples.iterations}
        found |= {"median_s": s.median_s, "low_s": s.low_s, "high_s": s.high_s}
        found |= {"mean_s": s.mean_s, "std_s": s.std_s, "min_s": s.min_s, "max_s": s.max_s}
    return found


def _comparison(entry: ExportedCase) -> dict[str, Any]:
    """The comparison of run times."""
    c = entry.run
    if c is None:
        return {}
    ends = {"ratio": c.ratio, "ratio_low": c.low, "ratio_high": c.high}
    return {"baseline": c.baseline.label, "verdict": c.verdict} | ends


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
        has_interval = s.low_s is not None and s.high_s is not None
        interval = {"range": f"95 %: {seconds_range(s.low_s or 0, s.high_s or 0)}"} if has_interval else {}
        yield {"name": entry.label, "value": nanoseconds(s.median_s), "unit": "ns", **interval, "extra": _extra(entry)}
    if entry.compile_s is not None:
        yield {"name": f"{entry.label} · compile", "value": round(1e3 * entry.compile_s, 6), "unit": "ms"}
    for what, value in entry.counted.items():
        words, unit = COUNTED[what]
        yield {"name": f"{entry.label} · {words}", "value": value, "unit": unit}


def _extra(entry: ExportedCase) -> str:
    env = entry.m.environment
    where = [env.device_kind if env.backend != "cpu" else env.processor, f"jax {env.jax}" if env.jax else ""]
    return "\n".join([entry.detail, *(part for part in where if part)])


NOT_MEASURED = math.nan


def to_google_benchmark(found: Sequence[ExportedCase]) -> str:
    """google-benchmark JSON, schema 1, for its `tools/compare.py`.

    Each case is one row, whose `real_time` is the median. The export omits repetitions, because compare.py would test
    samples of one process as if they were independent. CPU time is not measured, and a case that failed has no time at
    all. Both are NaN, as the library itself writes a missing number (json_reporter.cc, FormatKV). So this is the only
    export that is not strict JSON.
    """
    return (
        json.dumps(
            {"context": _context(found), "benchmarks": [_row(entry, i) for i, entry in enumerate(found)]}, indent=2
        )
        + "\n"
    )


def _context(found: Sequence[ExportedCase]) -> dict[str, Any]:
    env = common_environment([entry.m for entry in found])
    date = min((entry.m.started_at for entry in found), default=None)
    context = {
        "date": date,
        "host_name": env.get("host"),
        "executable": "benchax",
        "num_cpus": env.get("cores"),
        "json_schema_version": 1,
    }
    facts = ("benchax", "jax", "jaxlib", "backend", "device_kind", "processor", "commit")  # free keys are texts
    return drop_unknown(context | {name: str(env[name]) for name in facts if name in env})


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
    return row | _times(entry) | _counters(entry)


def _times(entry: ExportedCase) -> dict[str, Any]:
    unit = {"time_unit": "ns", "label": entry.detail}
    if entry.samples is None or entry.summary is None:
        why = {"error_occurred": True, "error_message": entry.why}
        return why | {"iterations": 0, "real_time": NOT_MEASURED, "cpu_time": NOT_MEASURED} | unit
    calls = sum(each.iterations * len(each.elapsed_s) for each in entry.m.series_of(entry.samples.timer))
    return {"iterations": calls, "real_time": nanoseconds(entry.summary.median_s), "cpu_time": NOT_MEASURED} | unit


def _counters(entry: ExportedCase) -> dict[str, Any]:
    s = entry.summary
    times = {"low_95_s": s.low_s, "high_95_s": s.high_s} if s else {}
    return drop_unknown(entry.rates | times | {"compile_s": entry.compile_s} | entry.counted)


def to_json(found: Sequence[ExportedCase]) -> str:
    """One object with everything: {"measurements": [...], "comparisons": [...]}.

    Each is a document as `codec.py` writes it, with every reading; a measurement also has a `summary` of the requested
    times. If there are no such times, the summary is null and `why` gives the reason.
    """
    comparisons = [json.loads(encode_comparison(c)) for entry in found for c in entry.comparisons]
    measurements = [_document(entry) for entry in found]
    return strict_json({"measurements": measurements, "comparisons": comparisons}, indent=None)


def _document(entry: ExportedCase) -> dict[str, Any]:
    summary = dataclasses.asdict(entry.summary) if entry.summary else None
    timer = {"timer": entry.samples.timer} if entry.samples else {"why": entry.why}
    return to_document(entry.m) | {"label": entry.label, "summary": summary, **timer}


def to_junit(found: Sequence[ExportedCase]) -> str:
    """JUnit XML: a case is a test.

    A failed one is an <error>, one that was never run is skipped, and one that a comparison calls slower is a
    <failure>. `time` is the median in seconds per call, and is omitted if there is no median. XML 1.0 cannot hold most
    control characters, not even escaped: they are written as \\x1b, and a lone half of a surrogate pair as \\ud800.
    """
    root = Element("testsuites", name="benchax")
    suite = SubElement(root, "testsuite", name="benchax")
    env = common_environment([entry.m for entry in found])
    if "host" in env:
        suite.set("hostname", spell_for_xml(env["host"]))
    if found:
        # JUnit's schema has no time zone; ours is UTC.
        suite.set("timestamp", spell_for_xml(min(entry.m.started_at for entry in found)[:19]))
    for entry in found:
        suite.append(_case(entry))
    _count(suite)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, suite.get(name, "0"))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _count(suite: Element) -> None:
    cases = suite.findall("testcase")
    suite.set("tests", str(len(cases)))
    for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(name, str(sum(case.find(tag) is not None for case in cases)))


def _case(entry: ExportedCase) -> Element:
    case = Element("testcase", classname=spell_for_xml(entry.m.case.name), name=spell_for_xml(entry.label))
    if entry.summary:
        # Without an exponent: `time` is a decimal in the schemas of JUnit.
        case.set("time", f"{entry.summary.median_s:.9f}")
    _properties(case, entry)
    if entry.m.failure:
        _add_failure(case, entry.m.failure)
    elif alarms := [c for c in entry.comparisons if is_alarm(c)]:
        _slower(case, alarms)
    elif entry.samples is None:
        SubElement(case, "skipped", message=spell_for_xml(entry.detail))
    SubElement(case, "system-out").text = spell_for_xml("\n".join([entry.detail, *map(sentence, entry.comparisons)]))
    return case


def _add_failure(case: Element, failure: Failure) -> None:
    tag = "skipped" if failure.kind == "not_run" else "error"
    found = SubElement(case, tag, type=failure.kind, message=spell_for_xml(f"in {failure.stage}: {failure.message}"))
    found.text = spell_for_xml("\n".join(part for part in (failure.advice, failure.traceback) if part))


def _slower(case: Element, alarms: Sequence[Comparison]) -> None:
    """One element: the schema has no room for more."""
    said = [sentence(c) for c in alarms]
    SubElement(case, "failure", type="slower", message=spell_for_xml(said[0])).text = spell_for_xml("\n".join(said))


def _properties(case: Element, entry: ExportedCase) -> None:
    s = entry.summary
    times = {"median_s": s.median_s, "low_95_s": s.low_s, "high_95_s": s.high_s} if s else {}
    numbers = drop_unknown(times | {"compile_s": entry.compile_s} | entry.counted | entry.rates)
    if numbers:
        properties = SubElement(case, "properties")
        for name, value in numbers.items():
            SubElement(properties, "property", name=spell_for_xml(name), value=repr(value))


MARKDOWN_COLUMNS = (CASE, "median", "95 % interval", "compile", "peak memory", "planned peak", "change", VERDICT)


def to_markdown(found: Sequence[ExportedCase]) -> str:
    """A table in GitHub's Markdown: for a pull request, a job summary, a page of results."""
    about = [Paragraph(_about(found))] if _about(found) else []
    why = tuple(TextRow(entry.label, entry.why) for entry in found if entry.why)
    notes = [Facts((Section("", why),), "words")] if why else []
    return render(
        Document((tabulate(MARKDOWN_COLUMNS, map(_line, found)).without_empty_columns(kept=(0, 1)), *about, *notes))
    )


def _line(entry: ExportedCase) -> tuple[str, ...]:
    return (
        entry.label,
        seconds(entry.summary.median_s)
        if entry.summary
        else (entry.m.failure.kind.replace("_", " ") if entry.m.failure else "not measured"),
        _interval(entry),
        seconds(entry.compile_s) if entry.compile_s is not None else "",
        _size(entry, "observed_peak_bytes"),
        _size(entry, "predicted_peak_bytes"),
        interval(entry.run) if entry.run else "",
        verdict(entry.run) if entry.run else "",
    )


def _size(entry: ExportedCase, what: str) -> str:
    return size(entry.counted[what]) if what in entry.counted else ""


def _interval(entry: ExportedCase) -> str:
    s = entry.summary
    return seconds_range(s.low_s, s.high_s) if s and s.low_s is not None and s.high_s is not None else ""


def _about(found: Sequence[ExportedCase]) -> str:
    """Where all this was measured, and against what."""
    env = common_environment([entry.m for entry in found])
    device = env.get("processor") if env.get("backend") == "cpu" else env.get("device_kind")
    jax = f"jax {env['jax']}" if "jax" in env else None
    commit = f"commit {env['commit'][:8]}{'+' * bool(env.get('is_dirty'))}" if "commit" in env else None
    timers = {entry.samples.timer for entry in found if entry.samples}
    timer = f"times by {', '.join(sorted(timers))}" if timers else None
    baselines = {entry.run.baseline.label for entry in found if entry.run}
    against = f"change against {', '.join(sorted(baselines))}" if baselines else None
    facts = (env.get("backend"), device, jax, commit, timer, against)
    return " · ".join(fact for fact in facts if fact)
