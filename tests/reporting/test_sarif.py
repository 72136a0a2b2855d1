"""SARIF: against a schema of the part that we write (tests/data/sarif-part.json); nothing beyond it is permitted."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import unquote, urlparse

import audits_by_hand as made
import jsonschema
import pytest

from benchax.reporting.audit import to_sarif
from benchax.results.audit import Audit

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
