"""What holds for every rule, whoever wrote it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchax.auditing.audit import SUPPRESSION, ask, choose_rules
from benchax.auditing.checklist import ITEMS, VARIANTS
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import NotApplicable, Rule, list_some, page_of
from benchax.auditing.rules import rules
from benchax.case import make_case
from benchax.experiments.variants import VARIANTS as KNOWN_VARIANTS
from benchax.results.audit import SEVERITIES
from benchax.results.watch import Watch

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "rules"
SECTIONS = ["What", "Why", "How it is measured", "What to do", "How to silence"]
EVERY_ID = [*rules(), SUPPRESSION]


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_says_what_it_asks_and_finds_in_a_function_of_its_name(rule: Rule) -> None:
    module = sys.modules[rule.find.__module__ if rule.find.__doc__ is None else __name__]
    first = (rule.find.__doc__ or module.__doc__ or "").split("\n\n")[0]

    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert rule.title.endswith("?")
    assert rule.severity in SEVERITIES
    assert rule.find.__name__ == rule.id.replace("-", "_")
    assert first.startswith(("Finds ", "Rules about "))
    assert first.rstrip().endswith(".")


@pytest.mark.parametrize("rule", rules().values(), ids=lambda rule: rule.id)
def test_a_rule_is_asked_about_nothing_but_its_subject(rule: Rule) -> None:
    program, function = ProgramEvidence(Watch()), Evidence(make_case(abs, (1.0,)))
    refused = {"function": [(program, "a program is audited")], "program": [(function, "not a program")], "both": []}

    for evidence, why in refused[rule.of]:
        with pytest.raises(NotApplicable, match=why):
            rule.check(evidence)


def test_each_rule_has_a_page_with_the_same_sections_and_no_page_is_left_over() -> None:
    pages = {path.stem: path.read_text(encoding="utf-8") for path in PAGES.glob("*.md") if path.stem != "index"}

    assert set(pages) == set(EVERY_ID)
    for rule, page in pages.items():
        assert page_of(rule) == f"docs/reference/rules/{rule}.md"
        assert page.startswith(f"# {rule}\n")
        assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS


def test_each_rule_has_tests() -> None:
    folder = Path(__file__).parent
    tests = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py") if path != Path(__file__))
    tested = {rule for rule in rules() if f'"{rule}"' in tests or rule.replace("-", "_") in tests}

    assert {rule for rule in rules() if not list(folder.glob(f"programs/{rule}/bad_*.py"))} <= tested


def test_rules_of_a_pack_are_asked_by_its_name_alone() -> None:
    by_default, numerics = set(choose_rules(None)), set(choose_rules(["numerics"]))

    assert by_default | numerics == set(rules())
    assert "explicit-inverse" in numerics - by_default


def test_the_checklist_asks_only_rules_and_variants_that_exist() -> None:
    assert {rule for item in ITEMS for rule in item.rules} <= set(rules())
    assert {item.variant for item in ITEMS if item.variant} == set(VARIANTS) <= set(KNOWN_VARIANTS)


@pytest.mark.parametrize(
    ("most", "what", "expected"),
    [(3, "", ["a", "b", "c"]), (2, "", ["a", "b", "and 1 more"]), (1, "loops", ["a", "and 2 more loops"])],
)
def test_of_many_lines_the_first_are_listed_and_the_others_counted(most: int, what: str, expected: list[str]) -> None:
    assert list_some(["a", "b", "c"], most, what) == expected


# ---- Rules can read every kind of loop ------------------------------------------------------------------------------

X, XS = "f32[8,8]", "f32[20,8,8]"


def recurrent(w: Any, xs: Any) -> Any:
    return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum()), xs[0], xs)


def mapped(w: Any, xs: Any) -> Any:
    return lax.map(lambda x: x @ w, xs)


def counting(w: Any, xs: Any) -> Any:
    total = lax.fori_loop(0, 20, lambda i, h: h + xs[i] @ w, jnp.zeros((8, 8)))
    return lax.fori_loop(0, 20, lambda i, rows: rows.at[i].set(total[0]), jnp.zeros((20, 8)))


def summing_low(w: Any, xs: Any) -> Any:
    xs = xs.astype(jnp.bfloat16)
    return lax.scan(lambda total, x: (total + x[0, 0] * w[0, 0], None), jnp.bfloat16(0), xs)[0]


def until(w: Any, xs: Any) -> Any:
    def turn(h: Any, x: Any) -> Any:
        return lax.while_loop(lambda h: h.sum() < w.sum(), lambda h: jnp.sqrt(h - x) + w, h), None

    return lax.scan(turn, xs[0], xs)[0]


def every_loop(w: Any, xs: Any) -> Any:
    low = summing_low(w.astype(jnp.bfloat16), xs)
    return recurrent(w, xs), mapped(w, xs), counting(w, xs), low, until(w, xs)


def derivative(w: Any, xs: Any) -> Any:
    return jax.grad(lambda w: jax.vmap(recurrent, (None, 1))(w, xs)[0].sum())(w)


@pytest.mark.parametrize("fn", [every_loop, derivative])
def test_no_rule_that_reads_programs_fails_on_a_loop(fn: Any) -> None:
    evidence = Evidence(make_case(fn, (X, XS)), max_time_s=0)

    answers = [ask(rule, evidence)[1] for rule in rules().values() if rule.traced]

    assert [each for each in answers if "the rule failed" in each.why] == []
