"""The habits that a linter does not know. One test for a rule, which lists all that break it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from source_tree import PACKAGE, files, parse

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
# Words in names, and what they are called instead (docs/glossary.md).
OTHER_WORDS = {
    r"slopes": "gradient",
    r"hindrance": "skip_reason",
    r"born": "with_env",
    r"unjitted": "eager",
    r"wish|wished": "GridSpec, request",
    r"duel|duels": "pair",
    r"met": "recorded",
    r"drawn|shown|told|said": "render, describe",
    r"dice": "rng",
    r"moods|luck": "drift, variation",
    r"begun": "start",
}


Broken = Iterator[tuple[Path, str]]
"""(file, what is wrong in it)"""


def without_docstring(package: Path) -> Broken:
    """A module begins by saying what it does."""
    yield from ((file, "") for file in files(package) if not ast.get_docstring(parse(file)))


def timed_assertions(package: Path) -> Broken:
    """Assertions in the code that is timed: pytest rewrites them, also those of the code under measurement; and -O
    removes them."""
    for file in _below(package, "machine", "measuring", "watching"):
        yield from ((file, f":{node.lineno}") for node in ast.walk(parse(file)) if isinstance(node, ast.Assert))


def rewritten_by_pytest(package: Path) -> Broken:
    """Modules with timed code whose docstring does not tell pytest to leave them as they are."""
    for file in _below(package, "machine", "measuring"):
        if "PYTEST_DONT_REWRITE" not in (ast.get_docstring(parse(file)) or ""):
            yield file, ""


def called_utils(package: Path) -> Broken:
    """A name that attracts everything and tells nothing."""
    for file in files(package):
        if "utils" in file.relative_to(package).with_suffix("").parts:
            yield file, ""
        yield from ((file, f":{node.lineno}") for node in _definitions(file) if node.name == "utils")


def named_by_other_words(package: Path) -> Broken:
    """Definitions whose name has a word that the field does not use: `_told_twice` has told and twice."""
    for file in files(package):
        for node in _definitions(file):
            parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", node.name)
            for word, say in OTHER_WORDS.items():
                if any(re.fullmatch(word, part, re.IGNORECASE) for part in parts):
                    yield file, f":{node.lineno}: {node.name}; say {say}"


def sharing_a_name(package: Path) -> Broken:
    """Classes of one name in two files."""
    where: dict[str, Path] = {}
    for file in files(package):
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            if name in where:
                yield file, f": {name} is in {where[name].relative_to(package).as_posix()}"
            where[name] = file


def _below(package: Path, *parts: str) -> list[Path]:
    return [file for part in parts for file in files(package / part)]


def _definitions(file: Path) -> list[Any]:
    return [node for node in ast.walk(parse(file)) if isinstance(node, DEFINITIONS)]


RULES = [without_docstring, timed_assertions, rewritten_by_pytest, called_utils, named_by_other_words, sharing_a_name]


def broken_by(rule: Callable[[Path], Broken], package: Path) -> list[str]:
    return [f"{file.relative_to(package).as_posix()}{what}" for file, what in rule(package)]


@pytest.mark.parametrize("rule", RULES)
def test_no_module_breaks_a_rule(rule: Callable[[Path], Broken]) -> None:
    assert broken_by(rule, PACKAGE) == []


def test_the_folders_with_timed_code_are_there() -> None:
    """Else two rules would pass for want of files."""
    assert all(files(PACKAGE / part) for part in ("machine", "measuring", "watching"))
