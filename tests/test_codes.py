"""The registry of codes has what the source says, and `benchax explain` shows it."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import get_args

import pytest
from command_line import Benchax, runner
from source_tree import PACKAGE

from benchax.codes import FAILURES, REMARKS
from benchax.model import FailureKind


@pytest.fixture
def benchax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    return runner(monkeypatch, capsys)


def written_codes() -> Iterator[str]:
    """First arguments of `Remark`, and of functions that pass a `code` on to it, as they are written in the source."""
    for file in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        makers = {node.name for node in nodes if _takes_code(node)} if _remarks(nodes) else set()
        assigned = {n.targets[0].id: n.value for n in nodes if isinstance(n, ast.Assign) if _is_name(n.targets[0])}
        for call in nodes:
            if isinstance(call, ast.Call) and call.args and _called(call) in {"Remark", *makers}:
                yield from _texts(call.args[0], {**assigned})


def _takes_code(node: ast.AST) -> bool:
    """Is it a function with such an argument, or a class whose first field is one?"""
    match node:
        case ast.FunctionDef(args=given):
            return any(each.arg == "code" for each in given.args[:2])
        case ast.ClassDef(body=[ast.Expr(), ast.AnnAssign(target=ast.Name("code")), *_]):
            return True
    return False


def _texts(node: ast.expr, assigned: dict[str, ast.expr]) -> Iterator[str]:
    """What an expression can be: a text, a name of one, or one of two."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from (*_texts(one, assigned), *_texts(other, assigned))
        case ast.Name(id=name) if name in assigned:
            yield from _texts(assigned.pop(name), assigned)


def _remarks(nodes: list[ast.AST]) -> bool:
    return any(isinstance(node, ast.Name) and node.id == "Remark" for node in nodes)


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def test_each_code_that_the_source_says_is_in_the_registry_and_no_other() -> None:
    assert {*written_codes()} == REMARKS.keys()


def test_each_kind_of_failure_is_in_the_registry() -> None:
    assert FAILURES.keys() == {*get_args(FailureKind)}


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("folded", "remark, warning, reported by run, bench, grid; see docs/reference/remarks.md"),
        ("out_of_memory", "failure, error"),
        ("key-reuse", "finding, warning, reported by audit; see docs/reference/rules/key-reuse.md"),
        ("UsageError", "error, error, reported by all verbs; see docs/reference/errors.md"),
    ],
)
def test_a_code_is_explained(code: str, text: str, benchax: Benchax) -> None:
    done = benchax("explain", code)

    assert done.code == 0
    assert done.out.startswith(f"{code}: ")
    assert text in done.out


def test_a_code_of_a_remark_and_of_a_rule_is_explained_twice(benchax: Benchax) -> None:
    found = [json.loads(line) for line in benchax("explain", "not-jitted", "--json").out.splitlines()]

    assert [each["kind"] for each in found] == ["remark", "finding"]


def test_without_a_code_all_are_listed(benchax: Benchax) -> None:
    done = benchax("explain")

    assert all(code in done.out for code in (*REMARKS, *FAILURES, "key-reuse", "UsageError"))


def test_a_slip_names_the_nearest_code(benchax: Benchax) -> None:
    done = benchax("explain", "foldet")

    assert done.code == 2
    assert "there is no code 'foldet'\nexpected 'folded'?" in done.err
