"""What holds for every rule, whoever wrote it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from benchax.auditing import rules as folder
from benchax.auditing import suppression
from benchax.auditing.checklist import ITEMS, VARIANTS
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.live_evidence import LiveEvidence
from benchax.auditing.rule import NotApplicable, Rule
from benchax.auditing.rules import rules
from benchax.case import make_case
from benchax.experiments.variants import VARIANTS as KNOWN_VARIANTS
from benchax.results.audit import SEVERITIES
from benchax.results.watch import Watch

ROOT = Path(__file__).parents[2]
MODULES = sorted(path.stem for path in Path(folder.__path__[0]).glob("*.py") if path.stem != "__init__")
SECTIONS = ["What", "Why", "How it is measured", "What to do", "How to silence"]
EVERY_ID = [*rules(), suppression.ID]


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_asks(rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.title.endswith("?")
    assert rule.severity in SEVERITIES


def test_every_module_is_one_rule_under_its_name() -> None:
    assert sorted(rule.replace("-", "_") for rule in rules()) == MODULES


@pytest.mark.parametrize("module", MODULES)
def test_a_rule_is_one_function_of_its_module(module: str) -> None:
    (rule,) = [
        value for value in vars(import_module(f"{folder.__name__}.{module}")).values() if isinstance(value, Rule)
    ]

    assert (rule.find.__name__, rule.id.replace("-", "_")) == (module, module)
    assert rule.finding("", (), "").page == f"docs/reference/rules/{rule.id}.md"


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_can_be_asked_about_and_is_asked_about_nothing_else(rule: Rule) -> None:
    program, function = ProgramEvidence("python train.py", Watch()), LiveEvidence(make_case(abs, (1.0,)))
    refused = {"function": [(program, "a program is audited")], "program": [(function, "not a program")], "both": []}

    for evidence, why in refused[rule.of]:
        with pytest.raises(NotApplicable, match=why):
            rule.check(evidence)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_says_in_a_sentence_what_its_rule_finds(module: str) -> None:
    first = (import_module(f"{folder.__name__}.{module}").__doc__ or "").split("\n\n")[0]

    assert first.startswith("Finds ")
    assert first.rstrip().endswith(".")


@pytest.mark.parametrize("rule", EVERY_ID)
def test_a_rule_has_a_page_with_the_same_sections_as_the_others(rule: str) -> None:
    page = (ROOT / "docs" / "reference" / "rules" / f"{rule}.md").read_text(encoding="utf-8")

    assert page.startswith(f"# {rule}\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("module", MODULES)
def test_a_rule_has_tests_of_its_own(module: str) -> None:
    folder = ROOT / "tests" / "auditing" / "rules"
    named = [path for path in folder.glob("test_*.py") if module.replace("_", "-") in path.read_text(encoding="utf-8")]
    assert (folder / f"test_{module}.py").is_file() or named


def test_no_page_is_left_over() -> None:
    pages = {path.stem for path in (ROOT / "docs" / "reference" / "rules").glob("*.md")} - {"index"}

    assert pages == set(EVERY_ID)


def test_the_checklist_asks_only_rules_and_variants_that_exist() -> None:
    assert {rule for item in ITEMS for rule in item.rules} <= set(rules())
    assert {item.variant for item in ITEMS if item.variant} == set(VARIANTS) <= set(KNOWN_VARIANTS)
