from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.auditing.audit import SUPPRESSION, Ignore, apply_suppressions, comments, of_project
from benchax.errors import UsageError
from benchax.results.audit import Finding, Where

KNOWN = ("not-jitted", "cache-off")
CODE = """\
import jax

@jax.jit
def outer(x):  # benchax: ignore[cache-off] runs once a week
    def inner(y):
        return y * 2  # benchax: ignore[not-jitted] part of outer
    text = "# benchax: ignore[not-jitted] no comment"
    return inner(x)

def other(x):
    return x  # benchax: ignore[not-jitted]
"""


@pytest.fixture
def code(tmp_path: Path) -> str:
    file = tmp_path / "code.py"
    file.write_text(CODE, encoding="utf-8")
    return str(file)


def finding(rule: str, where: Where | None) -> Finding:
    return Finding(rule, "warning", "title", (), "advice", "page", where)


def test_a_comment_on_the_line_silences_its_rule_with_its_reason(code: str) -> None:
    kept, silent = apply_suppressions([finding("not-jitted", (code, 6))], [], KNOWN)

    assert kept == []
    assert [(s.reason, s.by) for s in silent] == [("part of outer", f"{code}:6")]


def test_a_comment_on_the_def_holds_for_the_whole_function(code: str) -> None:
    _, silent = apply_suppressions([finding("cache-off", (code, 6)), finding("cache-off", (code, 3))], [], KNOWN)

    assert [s.reason for s in silent] == ["runs once a week"] * 2


def test_a_comment_holds_for_its_rule_and_its_function_only(code: str) -> None:
    findings = [finding("not-jitted", (code, 4)), finding("cache-off", (code, 11))]

    kept, silent = apply_suppressions(findings, [], KNOWN)

    assert silent == []
    assert kept[:2] == findings


def test_a_text_that_looks_like_a_comment_is_none(code: str) -> None:
    kept, _ = apply_suppressions([finding("not-jitted", (code, 7))], [], KNOWN)

    assert kept == [finding("not-jitted", (code, 7))]


def test_the_def_of_what_is_audited_speaks_for_findings_without_a_line(code: str) -> None:
    _, silent = apply_suppressions([finding("cache-off", None)], [], KNOWN, about=(code, 4))

    assert [s.reason for s in silent] == ["runs once a week"]


def test_without_a_reason_nothing_is_silenced_and_that_is_a_finding(code: str) -> None:
    kept, silent = apply_suppressions([finding("not-jitted", (code, 11))], [], KNOWN)

    assert silent == []
    assert [f.rule for f in kept] == ["not-jitted", SUPPRESSION]
    assert kept[1].where == (code, 11)
    assert "without a reason" in kept[1].title


def test_a_misspelt_rule_is_a_finding_that_names_the_nearest() -> None:
    kept, _ = apply_suppressions([], [Ignore("not-jited", "because", "[tool.benchax.audit]")], KNOWN)

    assert [f.title for f in kept] == ["ignores 'not-jited', which is no rule"]
    assert "'not-jitted'?" in kept[0].advice


def test_the_project_silences_a_rule_everywhere(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.benchax.audit]\nignore = { "cache-off" = "new machines" }')

    _, silent = apply_suppressions([finding("cache-off", None)], of_project(None), KNOWN)

    assert [(s.reason, s.by) for s in silent] == [
        ("new machines", f"[tool.benchax.audit] of {project / 'pyproject.toml'}")
    ]


@pytest.mark.parametrize("written", ['ignore = ["cache-off"]', 'ignore = { "a" = 1 }', "quiet = true"])
def test_a_table_that_cannot_be_understood_is_an_error_with_an_example(project: Path, written: str) -> None:
    (project / "pyproject.toml").write_text(f"[tool.benchax.audit]\n{written}")

    with pytest.raises(UsageError, match=r'ignore = \{ "not-jitted" = "the reason" \}'):
        of_project(None)


@given(st.text(), st.text())
def test_whatever_stands_around_it_a_comment_is_found_where_it_stands_or_not_at_all(before: str, after: str) -> None:
    text = f"{before}# benchax: ignore[not-jitted] {after}"
    lines = enumerate(text.split("\n"), start=1)

    found = {ignore.where for ignore in comments(text, "f.py")}

    assert found <= {("f.py", number) for number, line in lines if "# benchax: ignore[" in line}


@given(
    st.from_regex(r"[a-z-]{1,20}", fullmatch=True), st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1)
)
def test_every_rule_and_reason_comes_back(rule: str, reason: str) -> None:
    found = list(comments(f"x = 1  # benchax: ignore[{rule}] {reason}\n", "f.py"))

    assert found == [Ignore(rule, reason, "f.py:1", ("f.py", 1))]
