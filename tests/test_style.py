"""The habits that a linter does not know."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from source_tree import PACKAGE, files, parse

TIMED = [file for file in files() if file.relative_to(PACKAGE).parts[0] in ("measuring", "watching")]


def relative(file: Path) -> str:
    return str(file.relative_to(PACKAGE))


@pytest.mark.parametrize("file", files(), ids=relative)
def test_a_module_begins_by_saying_what_it_does(file: Path) -> None:
    assert ast.get_docstring(parse(file))


@pytest.mark.parametrize("file", TIMED, ids=relative)
def test_code_that_is_timed_asserts_nothing(file: Path) -> None:
    """pytest rewrites assertions, also those of the code under measurement; and -O removes them."""
    assert [node.lineno for node in ast.walk(parse(file)) if isinstance(node, ast.Assert)] == []


@pytest.mark.parametrize("file", [f for f in TIMED if "measuring" in f.parts], ids=relative)
def test_pytest_is_told_not_to_rewrite_code_that_is_timed(file: Path) -> None:
    assert "PYTEST_DONT_REWRITE" in (ast.get_docstring(parse(file)) or "")


def test_nothing_is_called_utils() -> None:
    """A name that attracts everything and tells nothing."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    named = [relative(f) for f in files() if "utils" in f.with_suffix("").parts[len(PACKAGE.parts) :]]
    named += [
        f"{relative(file)}:{node.lineno}"
        for file in files()
        for node in ast.walk(parse(file))
        if isinstance(node, definitions) and node.name == "utils"
    ]

    assert named == []
