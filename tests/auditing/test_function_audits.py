"""`auditing/function_audits.py`: functions of a program, looked at and not called."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.auditing import function_audits
from benchax.auditing.function_audits import join_audits, read
from benchax.auditing.recorded_functions import FunctionRecorder, RecordedFunction
from benchax.auditing.rules import rules
from benchax.results.audit import Audit, Checked, Finding

N = 1024
LARGE = 4 * N * N
DONATION = "donation-possible"


def met_in(call: Callable[[], Any]) -> list[RecordedFunction]:
    functions = FunctionRecorder()
    jax.block_until_ready(call())
    jax.effects_barrier()
    return functions.close()


def told_of(met: list[RecordedFunction], asked: list[str]) -> dict[str, Any]:
    """As it comes out of the program's process."""
    return json.loads(json.dumps(read(met, asked) | {"elapsed_s": 0.5}))


@jax.jit
def shifted(x: Any) -> Any:
    return x + 1


@pytest.fixture(scope="module")
def shift() -> list[RecordedFunction]:
    return met_in(lambda: shifted(jnp.ones((N, N))))


def test_what_the_compilers_plan_tells_is_found_without_a_call(shift: list[RecordedFunction]) -> None:
    told = read(shift, [DONATION])

    (function,) = told["functions"]
    (finding,) = function["findings"]
    assert (function["name"], function["signature"]) == ("shifted", f"f32[{N},{N}]")
    assert finding["gain_bytes"] == LARGE
    assert any("gain not measured, because functions of a program are read" in text for text in finding["seen"])


def test_no_rule_calls_the_function_and_none_fails(capfd: pytest.CaptureFixture[str]) -> None:
    calls: list[int] = []

    @jax.jit
    def told(x: Any) -> Any:
        sys.stdout.write("traced")
        jax.debug.callback(lambda: calls.append(1))
        return jnp.sin(x).astype(jnp.bfloat16).sum() + jnp.arange(3)

    met = met_in(lambda: told(jnp.ones((64, 64))))
    capfd.readouterr()
    (function,) = read(met, list(rules()))["functions"]
    jax.effects_barrier()

    assert calls == [1]
    assert capfd.readouterr().out == ""
    assert [one["rule"] for one in function["checked"] if "the rule failed" in one["why"]] == []
    assert {one["rule"] for one in function["checked"] if one["outcome"] in ("fine", "finding")} >= {
        "host-callback",
        "unrolled-loop",
        "weak-type-promotion",
        "captured-constants",
    }


def test_a_function_of_numbers_is_not_called_either() -> None:
    """Numbers stay what they are where shapes take the place of arrays, so that it could be called."""
    calls: list[int] = []

    @jax.jit
    def counts(n: Any) -> Any:
        jax.debug.callback(lambda: calls.append(1))
        return n * 2

    (function,) = read(met_in(lambda: counts(3.0)), ["implicit-transfers", "page-faulting-output"])["functions"]
    jax.effects_barrier()

    assert calls == [1]
    assert function["checked"][0]["why"] == "functions of a program are read when it has ended, not called"


def test_a_function_that_takes_long_to_compile_is_left_and_the_others_are_read(shift: list[RecordedFunction]) -> None:
    slow = replace(shift[0], compile_s=function_audits.READ_S, place=replace(shift[0].place, name="slow"))

    told = read([slow, *shift], [DONATION])

    assert told["left"] == ["slow: compiling it again takes 20 s"]
    assert [function["name"] for function in told["functions"] if function["is_built"]] == ["shifted"]


def test_rules_that_need_only_the_trace_are_asked_of_those_that_are_left_too() -> None:
    def reuses(key: Any) -> Any:
        return jax.random.normal(key) + jax.random.uniform(key)

    met = met_in(lambda: jax.jit(reuses)(jax.random.key(0)))
    slow = [replace(one, compile_s=function_audits.READ_S) for one in met]

    (function,) = read(slow, ["key-reuse", DONATION])["functions"]

    assert function["is_built"] is False
    assert [(one["rule"], one["outcome"]) for one in function["checked"]] == [("key-reuse", "finding")]


def test_of_a_program_that_failed_nothing_is_compiled_again(shift: list[RecordedFunction]) -> None:
    with benchax.watch() as seen:
        told = function_audits.look(shift, list(rules()))

    assert [function["is_built"] for function in told["functions"]] == [False]
    assert [c for c in seen.compiles if c.function == "shifted"] == []


def program(*outcomes: tuple[str, Any]) -> Audit:
    return Audit("train.py", checked=tuple(Checked(rule, rules()[rule].title, o, "why") for rule, o in outcomes))


def test_rules_without_an_answer_for_the_program_have_that_of_its_functions(shift: list[RecordedFunction]) -> None:
    told = told_of(shift, [DONATION, "captured-constants", "cache-off"])

    found = join_audits(program((DONATION, "not applicable"), ("captured-constants", "not applicable")), told)

    assert {checked.rule: checked.outcome for checked in found.checked} == {
        DONATION: "finding",
        "captured-constants": "fine",
    }
    (finding,) = found.findings
    assert finding.where is not None
    assert finding.where[0].endswith("test_function_audits.py")
    assert finding.seen[-1] == f"of shifted(f32[{N},{N}]), as the program called it"
    assert "shifted was traced and compiled once more, to look at, and not called (500 ms)" in found.remarks[0].message


def test_what_the_program_answered_itself_stays(shift: list[RecordedFunction]) -> None:
    audit = program((DONATION, "fine"))

    found = join_audits(audit, told_of(shift, [DONATION]))

    assert (found.checked, found.findings) == (audit.checked, ())


def test_of_several_functions_the_gravest_answer_counts(shift: list[RecordedFunction]) -> None:
    small = met_in(lambda: jax.jit(lambda x: x * 2)(jnp.ones(3)))

    found = join_audits(program((DONATION, "not applicable")), told_of([*small, *shift], [DONATION]))

    assert found.checked[0].outcome == "finding"
    assert len(found.findings) == 1


def test_infos_of_one_rule_are_told_together_and_those_of_a_packages_lines_not_at_all() -> None:
    def info(file: str, line: int) -> dict[str, Any]:
        finding = Finding(DONATION, "info", f"title {line}", ("seen",), "advice", "page", (file, line))
        return dataclasses.asdict(finding)

    package = str(Path(jax.__file__).parent.parent / "flax" / "module.py")
    functions = [
        {"name": name, "signature": "", "is_built": False, "checked": [], "suppressed": [], "findings": [info(*where)]}
        for name, where in (("f", ("train.py", 3)), ("g", (package, 4)), ("h", ("train.py", 5)))
    ]

    found = join_audits(program((DONATION, "not applicable")), {"functions": functions, "left": [], "elapsed_s": 1.0})

    (finding,) = found.findings
    assert finding.title == "title 3"
    assert finding.seen == ("seen", "of f(), as the program called it", "also train.py:5: title 5")


def test_warnings_of_one_line_that_several_functions_run_through_are_one() -> None:
    def warning(line: int, title: str) -> dict[str, Any]:
        return dataclasses.asdict(Finding(DONATION, "warning", title, ("seen",), "advice", "page", ("train.py", line)))

    functions = [
        {
            "name": name,
            "signature": "",
            "is_built": False,
            "checked": [],
            "suppressed": [],
            "findings": [warning(*told)],
        }
        for name, told in (("f", (3, "a")), ("g", (3, "b")), ("h", (4, "a")))
    ]

    found = join_audits(program((DONATION, "not applicable")), {"functions": functions, "left": [], "elapsed_s": 1.0})

    assert [(f.title, f.where) for f in found.findings] == [("a", ("train.py", 3)), ("a", ("train.py", 4))]
    assert found.findings[0].seen[2:] == ("also b", "also of g(), as the program called it")


def test_where_nothing_was_read_the_audit_is_as_it_was() -> None:
    audit = program((DONATION, "not applicable"))

    assert join_audits(audit, None) is audit
