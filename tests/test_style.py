"""The habits that a linter does not know. One test for a rule, which lists all that break it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
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


# ---- `.ci/prose.py`: stilted wording is counted for each file, and no count rises -----------------------------------

ROOT = Path(__file__).parents[1]


def prose(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / ".ci" / "prose.py", "--root", root, *arguments]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)


def write(root: Path, name: str, text: str) -> None:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    """A project whose README and one module have one place each, which is in the table."""
    (tmp_path / ".ci").mkdir()
    write(tmp_path, "README.md", "# Title\n\nThe reason is told.\n\n```\nit is told in code\n```\n")
    write(
        tmp_path, "src/a.py", '"""Adds.\n\nThe sum is told\n"""\nx = f"nothing {1} here"  # it is told in a comment\n'
    )
    text = "README.md told=1\nsrc/a.py told=1\n"
    write(tmp_path, ".ci/prose.txt", text)
    return tmp_path


def test_equal_counts_pass_and_print_nothing(counted: Path) -> None:
    done = prose(counted)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_count_that_rises_names_file_line_pattern_and_what_to_write(counted: Path) -> None:
    write(counted, "src/b.py", '"""Shows."""\n\nprint(f"rows {1} of "\n      "which {2}")\n')

    done = prose(counted)

    assert done.returncode == 1
    assert "src/b.py: 1 more of 'of-which' than 0; write a second sentence, or 'whose'" in done.stdout
    assert "  src/b.py:3: rows _ of which _" in done.stdout


def test_a_count_that_falls_has_to_be_lowered_by_one_command(counted: Path) -> None:
    write(counted, "README.md", "# Title\n\nThe row shows the reason.\n")

    before, lowered, after = prose(counted), prose(counted, "--lower"), prose(counted)

    assert (before.returncode, lowered.returncode, after.returncode) == (1, 0, 0)
    assert "Lower its counts: make prose" in before.stdout
    assert "README.md" not in (counted / ".ci" / "prose.txt").read_text(encoding="utf-8")


def test_a_new_pattern_is_added_and_an_old_one_is_not_added_again(counted: Path) -> None:
    write(counted, "src/b.py", '"""Shows nothing anew, or once more."""\n')

    first, again = prose(counted, "--add", "anew"), prose(counted, "--add", "told")

    assert (first.returncode, again.returncode) == (1, 2)  # once-more is new as well
    assert "src/b.py: 1 more of 'once-more' than 0" in first.stdout
    assert "counts of 'told', and they only fall" in again.stderr
    (counted / ".ci" / "prose.txt").unlink()
    assert prose(counted, "--add", "all").returncode == 0
    assert "src/b.py anew=1 once-more=1" in (counted / ".ci" / "prose.txt").read_text(encoding="utf-8")
