"""The habits that a linter does not know. One test for a rule, which lists all that break it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

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


def without_docstring(package: Path = PACKAGE) -> list[str]:
    return [_relative(file, package) for file in files(package) if not ast.get_docstring(parse(file))]


def timed_assertions(package: Path = PACKAGE) -> list[str]:
    """Assertions in the code that is timed: pytest rewrites them, also those of the code under measurement; and -O
    removes them."""
    return [
        f"{_relative(file, package)}:{node.lineno}"
        for file in _below("machine", package) + _below("measuring", package) + _below("watching", package)
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Assert)
    ]


def rewritten_by_pytest(package: Path = PACKAGE) -> list[str]:
    """Modules with timed code whose docstring does not tell pytest to leave them as they are."""
    timed = _below("machine", package) + _below("measuring", package)
    return [_relative(f, package) for f in timed if "PYTEST_DONT_REWRITE" not in (ast.get_docstring(parse(f)) or "")]


def called_utils(package: Path = PACKAGE) -> list[str]:
    """A name that attracts everything and tells nothing."""
    named = [_relative(f, package) for f in files(package) if "utils" in f.relative_to(package).with_suffix("").parts]
    return named + [
        f"{_relative(file, package)}:{node.lineno}"
        for file in files(package)
        if re.search(r"\butils\b", file.read_text(encoding="utf-8"))
        for node in ast.walk(parse(file))
        if isinstance(node, DEFINITIONS) and node.name == "utils"
    ]


def named_by_other_words(package: Path = PACKAGE) -> list[str]:
    """Definitions whose name has a word that the field does not use: `_told_twice` has told and twice."""
    return [
        f"{_relative(file, package)}:{node.lineno}: {node.name}; say {say}"
        for file in files(package)
        for node in ast.walk(parse(file))
        if isinstance(node, DEFINITIONS)
        for word, say in OTHER_WORDS.items()
        if any(re.fullmatch(word, part, re.IGNORECASE) for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", node.name))
    ]


def sharing_a_name(package: Path = PACKAGE) -> list[str]:
    """Classes of one name in two files."""
    where: dict[str, list[str]] = {}
    for file in files(package):
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE):
            where.setdefault(name, []).append(_relative(file, package))
    return [f"{name}: {', '.join(found)}" for name, found in where.items() if len(found) > 1]


def _below(part: str, package: Path) -> list[Path]:
    return files(package / part)


def _relative(file: Path, package: Path) -> str:
    return file.relative_to(package).as_posix()


def test_a_module_begins_by_saying_what_it_does() -> None:
    assert without_docstring() == []


def test_code_that_is_timed_asserts_nothing() -> None:
    assert timed_assertions() == []


def test_pytest_is_told_not_to_rewrite_code_that_is_timed() -> None:
    assert rewritten_by_pytest() == []


def test_nothing_is_called_utils() -> None:
    assert called_utils() == []


def test_names_use_the_words_of_the_field() -> None:
    assert named_by_other_words() == []


def test_no_two_classes_share_a_name() -> None:
    assert sharing_a_name() == []


@pytest.mark.parametrize(
    ("rule", "name", "text", "offender"),
    [
        (without_docstring, "store/base.py", "x = 1", "store/base.py"),
        (
            timed_assertions,
            "measuring/timers/wall.py",
            '"""PYTEST_DONT_REWRITE"""\nassert 1',
            "measuring/timers/wall.py:2",
        ),
        (timed_assertions, "watching/watch.py", '"""Watches."""\ndef f():\n    assert 1', "watching/watch.py:3"),
        (rewritten_by_pytest, "measuring/engine.py", '"""Measures."""', "measuring/engine.py"),
        (called_utils, "utils/text.py", '"""Does."""', "utils/text.py"),
        (called_utils, "store/utils.py", '"""Does."""', "store/utils.py"),
        (called_utils, "store/base.py", '"""Does."""\nclass utils: ...', "store/base.py:2"),
        (
            named_by_other_words,
            "store/base.py",
            "def _told_twice(): ...",
            "store/base.py:1: _told_twice; say render, describe",
        ),
        (
            named_by_other_words,
            "store/base.py",
            "class GridWish: ...",
            "store/base.py:1: GridWish; say GridSpec, request",
        ),
        (sharing_a_name, "store/base.py", "class A: ...\nclass A: ...", "A: store/base.py, store/base.py"),
    ],
)
def test_a_rule_names_what_breaks_it(
    rule: Callable[[Path], list[str]], name: str, text: str, offender: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text(text, encoding="utf-8")

    assert rule(tmp_path) == [offender]


def test_the_folders_with_timed_code_are_there() -> None:
    """Else two rules would pass for want of files."""
    assert all(files(PACKAGE / part) for part in ("machine", "measuring", "watching"))
