"""Audits and checklists in words, as pages, and as SARIF."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import jsonschema
import pytest
import results_by_hand as made

from benchax.model import Remark
from benchax.reporting import terminal
from benchax.reporting.audit import document, document_in_full, documents_of_all, to_sarif, verdict
from benchax.reporting.document import Code
from benchax.reporting.html import render_page
from benchax.results.audit import Audit, Checked, Checklist, Tick


def test_findings_come_with_place_evidence_gain_and_advice_and_the_rest_is_behind_verbose(
    project: Path, snapshot: Any
) -> None:
    informed = replace(made.audit(project), remarks=(Remark("a", "info", "it ran once"), Remark("b", "warning", "oh")))

    assert terminal.to_text(document(informed)) == snapshot(name="as the command prints it")
    assert terminal.to_text(document(informed, is_full=True)) == snapshot(name="with --verbose")
    assert "(.checked lists them)" in str(informed)


SILENT = Audit("train.py", checked=(Checked("cache-off", "is the cache on?", "not checked", "it failed"),))
ENDLESS = replace(made.clean(), remarks=(Remark("not-called", "error", "it does not end"),))


@pytest.mark.parametrize(
    ("audit", "said"),
    [
        (made.clean(), "nothing found: 1 rule fine, 1 not applicable"),
        (made.audit(Path()), "2 findings (1 error, 1 warning); 1 rule fine, 2 not applicable, 1 not checked"),
        (SILENT, "nothing is known: 1 not checked"),
        (ENDLESS, "little is known: 1 rule fine, 1 not applicable"),
    ],
    ids=["clean", "findings", "no rule has an answer", "it could not be called"],
)
def test_the_first_line_is_what_was_found_and_what_was_looked_for(audit: Audit, said: str) -> None:
    assert verdict(audit) == said
    assert str(audit).splitlines()[0].endswith(f": {said}")


def test_the_page_needs_nothing_but_itself(project: Path) -> None:
    page = render_page("audits", documents_of_all([made.audit(project), made.clean()]))

    assert page.startswith("<!doctype html>")
    assert "the title of branch-on-value" in page
    assert "nothing found" in page
    markup = re.sub("'sha256-[^']*'", "", page.partition("<script>")[0])  # what follows is ours alone
    assert not any(word in markup for word in ("src=", "url(", "@import", "//"))


def test_a_page_quotes_the_line_that_a_finding_is_about(project: Path) -> None:
    source = project / "model.py"
    source.write_text("a = 1\nb = 2\nc = '</script>'\nd = 4\ne = 5\nf = 6\n")
    audit = made.audit(project)
    about = replace(audit.findings[0], where=(str(source), 3))

    blocks = document_in_full(replace(audit, findings=(about, replace(about, where=("gone.py", 3))))).blocks

    (code,) = (block for block in blocks if isinstance(block, Code))
    assert code.text.splitlines()[1:4] == ["      2  b = 2", ">     3  c = '</script>'", "      4  d = 4"]


TICKS = (
    Tick("memory", "Donate buffers", "yes", "nothing found by donation-possible"),
    Tick("memory", "Profile memory", "not checked", "it does not trace"),
    Tick("precision", "Compute in bf16", "no", "tried: it saves 3 ms"),
    Tick("devices", "Shard", "not applicable", "there is one device"),
)


def test_each_line_has_its_mark_and_why_below_a_heading_that_counts(snapshot: Any) -> None:
    assert str(Checklist("step", "f32[8]", TICKS, 41.0)) == snapshot


SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-part.json").read_text(encoding="utf-8"))


def written(audit: Audit, folder: Path) -> dict:
    return json.loads(to_sarif([audit], folder))


def results(audit: Audit, folder: Path) -> dict[str, dict]:
    return {result["ruleId"]: result for result in written(audit, folder)["runs"][0]["results"]}


HOSTILE = "a[red]b</td><script>alert(1)</script>\n✗ \u202e'\"&"


@pytest.mark.parametrize("name", ["full", "clean", "hostile"])
def test_it_is_valid(name: str, tmp_path: Path) -> None:
    audit = {"full": made.audit(tmp_path), "clean": made.clean(), "hostile": made.every_result(HOSTILE)["Audit"]}[name]

    jsonschema.validate(written(audit, tmp_path), SCHEMA)


def test_results_have_levels_places_numbers_and_suppressions(tmp_path: Path) -> None:
    found = results(made.audit(tmp_path), tmp_path)

    assert {rule: result["level"] for rule, result in found.items()} == {
        "branch-on-value": "error", "not-jitted": "warning", "cache-off": "note", "trivial-jit": "note",
    }  # fmt: skip
    # A file of the project is named from its folder, another one in full.
    inside, outside = (found[rule]["locations"][0]["physicalLocation"] for rule in ("not-jitted", "branch-on-value"))
    assert inside["artifactLocation"] == {"uri": "a%20dir/tr%C3%A4in.py", "uriBaseId": "SRCROOT"}
    assert inside["region"] == {"startLine": 12}
    assert urlparse(outside["artifactLocation"]["uri"]).path == "/elsewhere/b.py"
    properties = found["not-jitted"]["properties"]
    assert (properties["gain_s"], "gain_bytes" in properties) == (1e-3, False)
    assert found["cache-off"]["suppressions"][0]["kind"] == "external"
    assert found["trivial-jit"]["suppressions"] == [
        {"kind": "inSource", "status": "accepted", "justification": "called by others"}
    ]
    assert "suppressions" not in found["not-jitted"]


def test_a_rule_that_could_not_look_is_a_notification(tmp_path: Path) -> None:
    notes = written(made.audit(tmp_path), tmp_path)["runs"][0]["invocations"][0]["toolExecutionNotifications"]

    assert "step: numpy-inputs: not checked, because the time was used up" in [n["message"]["text"] for n in notes]
