"""JUnit XML: a case is a test. A failed one is an <error>, one that was never run is skipped, and one that a comparison
calls slower is a <failure>.

`time` is the median in seconds per call, and is omitted if there is no median. XML 1.0 cannot hold most control
characters, not even escaped: they are written as \\x1b, and a lone half of a surrogate pair as \\ud800.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from benchax.model import Comparison, Failure
from benchax.printable import spell_for_xml
from benchax.reporting.comparisons import sentence
from benchax.reporting.exports.entries import ExportedCase, common_environment, drop_unknown, is_alarm


def text(found: Sequence[ExportedCase]) -> str:
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
