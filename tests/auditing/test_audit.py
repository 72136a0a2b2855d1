"""Audits: what is done with rules, real programs as their users start them, and suppressions."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax_versions import shows_calls

import benchax
from benchax.auditing import audit as audits
from benchax.auditing.audit import (
    SUPPRESSION,
    Audited,
    Ignore,
    apply_suppressions,
    ask,
    audit_program,
    comments,
    of_project,
    run_rules,
)
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Match, NotApplicable, Rule, rule
from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.progress import ProgressEvent
from benchax.results.audit import Checked, Finding, Where


def double(x):
    return x * 2


def made(check: Callable[[Evidence], Iterable[Match]] | None = None, id: str = "made", **more: Any) -> Rule:
    """A rule that does what it is told; where it is told nothing, it finds something."""

    def finds(e: Evidence) -> Iterable[Match]:
        yield Match("it is", ["seen"], "do")

    return rule(id, "is it made?", more.get("severity", "warning"))(check or finds)


def evidence() -> Evidence:
    return Evidence(make_case(double, (jnp.arange(3.0),)))


def raises(error: Exception) -> Rule:
    def check(e: Evidence) -> Iterable[Match]:
        raise error

    return made(check)


@pytest.mark.parametrize(
    ("asked", "outcome", "why"),
    [
        (made(lambda e: ()), "fine", ""),
        (made(), "finding", ""),
        (raises(NotApplicable("it is Tuesday")), "not applicable", "it is Tuesday"),
        (raises(NotMeasured("the clock stopped")), "not checked", "the clock stopped"),
    ],
)
def test_each_end_of_a_rule_is_an_outcome_with_its_reason(asked: Rule, outcome: str, why: str) -> None:
    _, checked = ask(asked, evidence())

    assert (checked.outcome, checked.why) == (outcome, why)


def test_a_rule_that_fails_is_a_line_and_the_others_go_on() -> None:
    asked = {"broken": raises(ZeroDivisionError("0/0")), "made": made()}

    result = run_rules(evidence(), asked, "double")

    assert [c.outcome for c in result.checked] == ["not checked", "finding"]
    assert "the rule failed: ZeroDivisionError: 0/0" in result.checked[0].why
    assert "test_audit.py:" in result.checked[0].why


def test_what_a_rule_found_before_it_failed_is_kept() -> None:
    def check(e: Evidence) -> Iterable[Match]:
        yield from made().find(e)
        raise NotMeasured("no time")

    findings, checked = ask(made(check), evidence())

    assert [f.title for f in findings] == ["it is"]
    assert (checked.outcome, checked.why) == ("finding", "no time")


def test_the_gravest_findings_come_first() -> None:
    asked = {s: made(id=s, severity=s) for s in ("info", "error", "warning")}

    result = run_rules(evidence(), asked, "double")

    assert [f.severity for f in result.findings] == ["error", "warning", "info"]
    assert result.reaches("error")


def test_time_is_spent_on_grave_rules_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": made(id="a", severity="info"), "b": made(id="b", severity="error")}
    monkeypatch.setattr(audits, "every_rule", lambda: known)

    assert list(audits.choose_rules(None)) == ["b", "a"]


def test_progress_is_told_rule_by_rule_and_what_takes_time() -> None:
    told: list[ProgressEvent] = []
    asked = {"one": made(lambda e: [e.failure][1:], "one"), "two": made(id="two")}

    run_rules(evidence(), asked, "double", report=told.append)

    one, two = "one · double", "two · double"
    assert told == [
        ProgressEvent(one, total=2),
        ProgressEvent(one, "tracing and compiling", total=2),
        ProgressEvent(two, done=1, total=2),
    ]


def test_an_interrupt_that_compiled_code_makes_an_error_of_ends_the_audit() -> None:
    def check(e: Evidence) -> Iterable[Match]:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("CpuCallback error: KeyboardInterrupt") from None
        return ()

    with pytest.raises(KeyboardInterrupt):
        run_rules(evidence(), {"made": made(check)}, "double")

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_inputs_that_cannot_be_read_are_an_error_and_no_finding() -> None:
    with pytest.raises(UsageError, match="f33"):
        benchax.audit(double, "f33[8]", rules=["captured-constants"])


def test_an_audit_says_what_was_done_with_the_function() -> None:
    result = benchax.audit(double, jnp.arange(3.0), rules=["captured-constants"])

    (remark,) = result.remarks
    assert remark.message == (
        "To find this out, the function was tried in a worker process (compiled), traced, compiled."
    )


def test_a_project_that_silences_a_rule_can_still_be_measured(project: Path) -> None:
    """The table of audits isn't an option of a measurement."""
    (project / "pyproject.toml").write_text('[tool.benchax.audit]\nignore = { "made" = "is made on purpose" }')

    result = run_rules(evidence(), {"made": made()}, "double")
    benchax.bench(double, 1.0, max_time_s=0.01, store="off")

    assert [s.reason for s in result.suppressed] == ["is made on purpose"]
    assert "made" not in {f.rule for f in result.findings}


# ---- audited program -------------------------------------------------------------------------------------------------

# Its line numbers are told in the tests.
TRAINING = """
import pathlib, sys
import jax, jax.numpy as jnp, numpy as np

@jax.jit
def gradient(w, x):
    return x.T @ (x @ w)

w = jnp.ones(4)
for rows in [8] * 40:
    slope = gradient(w, np.ones((rows, 4), np.float32))
    # clip, multiply, subtract
    w = w - 1e-3 * jnp.clip(slope, -1, 1)
    w = jax.jit(lambda a: a * 0.5)(w)
with pathlib.Path("runs.txt").open("a") as file:
    file.write("run\\n")
print("loss", float(w.sum()) > 0)
sys.exit(5)
"""
CLEAN = """
import jax, jax.numpy as jnp

@jax.jit
def step(w):
    return w * 0.5

w = jnp.ones(4)
for _ in range(300):
    w = step(w)
w.block_until_ready()
"""
PARENT = """
import subprocess, sys
import jax, jax.numpy as jnp
jnp.ones(3) + 1
subprocess.run([sys.executable, "child.py"], check=True)
"""
CHILD = """
import jax.numpy as jnp
x = jnp.ones(3)
for _ in range(150):
    x = x + 1
"""


def audited_in(folder: Path, text: str, **settings: float) -> Audited:
    """The program, in that folder."""
    (folder / "train.py").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return audit_program([sys.executable, "train.py"], **settings)  # pyright: ignore[reportArgumentType]


def checked(found: Audited, rule: str) -> Checked:
    return next(one for one in found.audit.checked if one.rule == rule)


def findings(found: Audited, rule: str) -> list[Finding]:
    return [finding for finding in found.audit.findings if finding.rule == rule]


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> tuple[Audited, Path]:
    folder = tmp_path_factory.mktemp("training")
    return audited_in(folder, TRAINING), folder


@pytest.mark.slow
def test_the_program_runs_once_and_keeps_its_exit_code(training: tuple[Audited, Path]) -> None:
    found, folder = training

    assert found.ended.exit_code == 5
    assert (folder / "runs.txt").read_text(encoding="utf-8") == "run\n"
    assert any("ran once, unchanged, and ended with 5" in remark.message for remark in found.audit.remarks)


@pytest.mark.slow
@shows_calls
def test_the_line_that_sends_operations_one_by_one_is_found(training: tuple[Audited, Path]) -> None:
    (finding,) = findings(training[0], "eager-operations")

    assert finding.where == (str(training[1] / "train.py"), 13)
    assert finding.seen[0] == "120 from train.py:13"
    assert any(text.endswith("calls of jitted functions: 80") for text in finding.seen)


def test_rules_of_one_function_are_answered_by_the_functions_of_the_program(training: tuple[Audited, Path]) -> None:
    found = training[0]

    assert checked(found, "captured-constants").outcome == "fine"
    assert (checked(found, "not-jitted").outcome, checked(found, "not-jitted").why) == (
        "not applicable",
        "it is jitted",
    )
    assert any("gradient" in r.message and "inspected" in r.message for r in found.audit.remarks)


@pytest.mark.slow
def test_of_a_program_that_fails_no_function_is_looked_at(tmp_path: Path) -> None:
    found = audited_in(tmp_path, f"{CLEAN}\nraise RuntimeError('lost')")

    assert found.ended.exit_code == 1
    answer = checked(found, "captured-constants")
    assert (answer.outcome, answer.why) == (
        "not applicable",
        "a program is audited, not one function with its inputs",
    )


def test_the_environment_is_that_of_the_program(training: tuple[Audited, Path]) -> None:
    environment = training[0].audit.environment

    assert environment is not None
    assert environment.backend == "cpu"


@pytest.mark.slow
@shows_calls
def test_a_program_in_one_jitted_loop_sends_no_operations(tmp_path: Path) -> None:
    found = audited_in(tmp_path, CLEAN)

    assert checked(found, "eager-operations").outcome == "fine"
    assert checked(found, "compile-share").outcome == "fine"


@pytest.mark.slow
@shows_calls
def test_each_process_is_looked_at_and_named(tmp_path: Path) -> None:
    (tmp_path / "child.py").write_text(CHILD, encoding="utf-8")

    found = audited_in(tmp_path, PARENT)

    (finding,) = findings(found, "eager-operations")
    assert finding.where == (str(tmp_path / "child.py"), 5)
    assert finding.seen[-1].startswith("in process ")
    assert finding.seen[-1].endswith("child.py")


@pytest.mark.slow
@shows_calls
def test_counting_ends_with_its_time_and_leaves_calls_as_quick_as_before(tmp_path: Path) -> None:
    text = CHILD.replace("jnp.ones(3)", "jnp.ones(3) + 0; from jax._src import pjit, array; held.wait()")
    # The first call starts the time; the program calls until enough was seen and JAX is as it was.
    before = "import jax, threading, types\nfrom jax._src import pjit\nwas = pjit._get_fastpath_data.__name__\n"
    wait = (
        "def wait():\n    f = jax.jit(lambda x: x + 1)\n    while pjit._get_fastpath_data.__name__ == was: f(1.0)\n"
        "held = types.SimpleNamespace(wait=wait)\n"
    )

    found = audited_in(tmp_path, before + wait + text, calls_s=0.01, limit_s=60)

    assert not findings(found, "eager-operations")
    assert found.ended.exit_code == 0


UNJITTED = """
import time
import jax, jax.numpy as jnp

@jax.jit
def slow_to_trace(x):
    time.sleep(3.0)
    return x + 1

def step(x, i):
    y = x[i]
    for _ in range(6):
        y = jnp.tanh(y * 2 + 1)
    return x.at[0].set(y)

x = slow_to_trace(jnp.ones(4))
for i in range(30):
    x = step(x, i % 4)
for i in jnp.asarray([[0, 1]] * 90):
    jax.block_until_ready(x[i])
"""


@pytest.mark.slow
@shows_calls
def test_a_function_that_was_never_jitted_is_found_however_long_compiling_took(tmp_path: Path) -> None:
    # A window of 2 s, which tracing alone would fill.
    found = audited_in(tmp_path, UNJITTED, calls_s=4.0)

    (finding,) = findings(found, "eager-operations")
    file = str(tmp_path / "train.py")
    assert finding.where == (file, 13)
    assert {("called here", file, 18), ("defined here", file, 10)} <= set(finding.related)
    # Parts of arrays are taken between calls, also by many an operation: 90 times at line 20.
    assert not any("train.py:20" in text for text in finding.seen)


ENDLESS = """
import jax, jax.numpy as jnp

def settle(x):
    shrink = lambda x: jax.lax.while_loop(lambda x: x != 0.0, lambda x: x / 2 + 1, x)
    return jax.lax.cond(x > 0, shrink, jnp.sin, x)

print(jax.jit(jax.vmap(settle))(jnp.ones(4)))
"""


@pytest.mark.slow
def test_a_program_that_never_comes_back_from_compiled_code_is_audited_when_its_time_is_up(tmp_path: Path) -> None:
    found = audited_in(tmp_path, ENDLESS, limit_s=6.0)

    assert found.ended.is_timed_out
    (finding,) = findings(found, "vmapped-cond")
    assert finding.where == (str(tmp_path / "train.py"), 5)
    assert "also runs for rows that take another branch" in finding.title


def test_a_program_without_jax_is_not_called_fine(tmp_path: Path) -> None:
    found = audited_in(tmp_path, "print('no jax here')")

    assert {answer.outcome for answer in found.audit.checked} == {"not checked"}
    assert "jax was never imported" in found.audit.checked[0].why
    assert found.audit.findings == ()


@pytest.mark.slow
@shows_calls
def test_a_program_that_calls_nothing_is_not_called_fine(tmp_path: Path) -> None:
    found = audited_in(tmp_path, "import jax")

    assert checked(found, "eager-operations").why == "no call was seen"


def test_no_program_runs_for_a_rule_that_does_not_exist(tmp_path: Path) -> None:
    mark = tmp_path / "ran"

    with pytest.raises(UsageError, match="no rule 'eager-operation'"):
        audit_program([sys.executable, "-c", f"open({str(mark)!r}, 'w')"], ["eager-operation"])

    assert not mark.exists()


# ---- suppression -----------------------------------------------------------------------------------------------------

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

    assert [f.title for f in kept] == ["ignores 'not-jited', which isn't a rule"]
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
