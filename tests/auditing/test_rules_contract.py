"""What holds for every rule, whoever wrote it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from benchax.auditing import suppression
from benchax.auditing.audit import choose_rules
from benchax.auditing.checklist import ITEMS, VARIANTS
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import NotApplicable, Rule, page_of
from benchax.auditing.rules import rules
from benchax.case import make_case
from benchax.experiments.variants import VARIANTS as KNOWN_VARIANTS
from benchax.results.audit import SEVERITIES
from benchax.results.watch import Watch

ROOT = Path(__file__).parents[2]
SECTIONS = ["What", "Why", "How it is measured", "What to do", "How to silence"]
EVERY_ID = [*rules(), suppression.ID]


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_asks(rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.title.endswith("?")
    assert rule.severity in SEVERITIES


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_is_a_function_of_its_name(rule: Rule) -> None:
    assert rule.find.__name__ == rule.id.replace("-", "_")
    assert page_of(rule.id) == f"docs/reference/rules/{rule.id}.md"


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_can_be_asked_about_and_is_asked_about_nothing_else(rule: Rule) -> None:
    program, function = ProgramEvidence("python train.py", Watch()), Evidence(make_case(abs, (1.0,)))
    refused = {"function": [(program, "a program is audited")], "program": [(function, "not a program")], "both": []}

    for evidence, why in refused[rule.of]:
        with pytest.raises(NotApplicable, match=why):
            rule.check(evidence)


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_in_a_sentence_what_it_finds(rule: Rule) -> None:
    module = sys.modules[rule.find.__module__ if rule.find.__doc__ is None else __name__]
    first = (rule.find.__doc__ or module.__doc__ or "").split("\n\n")[0]

    assert first.startswith(("Finds ", "Rules about "))
    assert first.rstrip().endswith(".")


@pytest.mark.parametrize("rule", EVERY_ID)
def test_a_rule_has_a_page_with_the_same_sections_as_the_others(rule: str) -> None:
    page = (ROOT / "docs" / "reference" / "rules" / f"{rule}.md").read_text(encoding="utf-8")

    assert page.startswith(f"# {rule}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("rule", rules())
def test_a_rule_has_tests(rule: str) -> None:
    folder = ROOT / "tests" / "auditing"
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py") if path != Path(__file__)]
    is_named = any(name in text for text in texts for name in (rule, rule.replace("-", "_")))
    assert is_named or list(folder.glob(f"programs/{rule}/bad_*.py"))


def test_rules_of_a_pack_are_asked_by_its_name_alone() -> None:
    by_default, numerics = set(choose_rules(None)), set(choose_rules(["numerics"]))

    assert by_default | numerics == set(rules())
    assert "explicit-inverse" in numerics - by_default


def test_no_page_is_left_over() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "reference" / "rules").glob("*.md")} - {"index"}

    assert pages == set(EVERY_ID)


def test_the_checklist_asks_only_rules_and_variants_that_exist() -> None:
    assert {rule for item in ITEMS for rule in item.rules} <= set(rules())
    assert {item.variant for item in ITEMS if item.variant} == set(VARIANTS) <= set(KNOWN_VARIANTS)
