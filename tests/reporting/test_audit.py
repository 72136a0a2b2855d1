"""."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import audits_by_hand as made
import jsonschema
import pytest

from benchax.model import Remark
from benchax.reporting import (
    display,  # noqa: F401  # what print needs
    terminal,
)
from benchax.reporting.audit import document, document_in_full, documents_of_all, to_sarif, verdict
from benchax.reporting.document import Code
from benchax.reporting.pages.page import render_page
from benchax.results.audit import Audit, Checked, Checklist, Tick


def test_findings_come_with_place_evidence_gain_and_advice_and_the_rest_is_behind_verbose(
    project: Path, snapshot: Any
) -> None:
    informed = replace(made.audit(project), remarks=(Remark("a", "info", "it ran once"), Remark("b", "warning", "oh")))

    assert terminal.to_text(document(informed)) == snapshot(name="as the command prints it")
    assert terminal.to_text(document(informed, is_full=True)) == snapshot(name="with --verbose")
    assert "(.checked lists them)" in str(informed)


def test_where_nothing_is_found_it_says_what_was_looked_for(project: Path) -> None:
    assert verdict(made.clean()) == "nothing found: 1 rule fine, 1 not applicable"
    assert verdict(made.audit(project)) == (
        "2 findings (1 error, 1 warning); 1 rule fine, 2 not applicable, 1 not checked"
    )


def test_where_no_rule_has_an_answer_it_is_not_called_clean() -> None:
    silent = Audit("train.py", checked=(Checked("cache-off", "is the cache on?", "not checked", "it failed"),))

    assert verdict(silent) == "nothing is known: 1 not checked"


def test_where_it_could_not_be_called_it_is_not_called_clean() -> None:
    endless = replace(made.clean(), remarks=(Remark("not-called", "error", "it does not end"),))

    assert verdict(endless) == "little is known: 1 rule fine, 1 not applicable"


def test_any_text_of_the_user_survives_and_none_is_markup() -> None:
    audit = made.hostile()

    page = audit._repr_html_() or ""
    assert "a[red]b" in str(audit)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_the_page_needs_nothing_but_itself(project: Path) -> None:
    page = render_page("audits", documents_of_all([made.audit(project), made.clean()]))

    assert page.startswith("<!doctype html>")
    assert "the title of branch-on-value" in page
    assert "nothing found" in page
    markup, _, _ = page.partition("<script>")  # what follows is ours alone
    assert not any(word in markup for word in ("src=", "url(", "@import", "//"))


def test_an_audit_shows_itself(project: Path) -> None:
    import benchax

    assert benchax.Audit is type(made.clean())
    assert str(made.clean()).splitlines()[0].startswith("clean: nothing found: 1 rule fine")
    assert "nothing found" in (made.clean()._repr_html_() or "")


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


def test_any_text_survives() -> None:
    hostile = Checklist(made.HOSTILE, made.HOSTILE, (Tick(made.HOSTILE, made.HOSTILE, "no", made.HOSTILE),))

    assert "a[red]b" in str(hostile)
    assert "<script>" not in (hostile._repr_html_() or "")


SCHEMA = json.loads((Path(__file__).parents[1] / "data" / "sarif-part.json").read_text(encoding="utf-8"))


def written(audit: Audit, folder: Path) -> dict:
    return json.loads(to_sarif([audit], folder))


def results(audit: Audit, folder: Path) -> dict[str, dict]:
    return {result["ruleId"]: result for result in written(audit, folder)["runs"][0]["results"]}


@pytest.mark.parametrize("name", ["full", "clean", "hostile"])
def test_it_is_valid(name: str, tmp_path: Path) -> None:
    audit = {"full": made.audit(tmp_path), "clean": made.clean(), "hostile": made.hostile()}[name]

    jsonschema.validate(written(audit, tmp_path), SCHEMA)


def test_severities_become_levels(tmp_path: Path) -> None:
    levels = {rule: result["level"] for rule, result in results(made.audit(tmp_path), tmp_path).items()}

    assert levels == {
        "branch-on-value": "error", "not-jitted": "warning", "cache-off": "note", "trivial-jit": "note",
    }  # fmt: skip


def test_a_file_of_the_project_is_named_from_its_folder(tmp_path: Path) -> None:
    (location,) = results(made.audit(tmp_path), tmp_path)["not-jitted"]["locations"]
    place = location["physicalLocation"]

    assert place["artifactLocation"]["uriBaseId"] == "SRCROOT"
    assert unquote(place["artifactLocation"]["uri"]) == "a dir/träin.py"
    assert place["artifactLocation"]["uri"].isascii()
    assert place["region"] == {"startLine": 12}


def test_another_file_is_named_in_full(tmp_path: Path) -> None:
    (location,) = results(made.audit(tmp_path), tmp_path)["branch-on-value"]["locations"]

    assert urlparse(location["physicalLocation"]["artifactLocation"]["uri"]).path == "/elsewhere/b.py"


def test_suppressed_findings_are_there_as_suppressed(tmp_path: Path) -> None:
    found = results(made.audit(tmp_path), tmp_path)

    assert found["cache-off"]["suppressions"][0]["kind"] == "external"
    assert found["trivial-jit"]["suppressions"] == [
        {"kind": "inSource", "status": "accepted", "justification": "called by others"}
    ]
    assert "suppressions" not in found["not-jitted"]


def test_a_rule_that_could_not_look_is_a_notification(tmp_path: Path) -> None:
    notes = written(made.audit(tmp_path), tmp_path)["runs"][0]["invocations"][0]["toolExecutionNotifications"]

    assert "step: numpy-inputs: not checked, because the time was used up" in [n["message"]["text"] for n in notes]


def test_numbers_travel_as_properties(tmp_path: Path) -> None:
    properties = results(made.audit(tmp_path), tmp_path)["not-jitted"]["properties"]

    assert (properties["gain_s"], "gain_bytes" in properties) == (1e-3, False)
