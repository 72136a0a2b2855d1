"""The words of the project: where JAX, XLA, NumPy or statistics has a word, it is that word (docs/glossary.md)."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_tree import PACKAGE, parse

ROOT = PACKAGE.parents[1]
FILES = sorted((ROOT / "src").rglob("*.py"))
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)

# word as a regular expression: what to say
PRINTED = {
    r"back ends?": "backend",
    r"un-jitted": "eager, or not jitted",
    r"slopes": "gradient",
    r"the roof": "memory-bound, compute-bound, roofline",
    r"could take over": "could be donated, reused",
    r"of them again": "recompilations",
    r"cut alike": "sharded",
    r"say to one another": "collectives",
    r"handed to another thread": "dispatched to the thread pool",
    r"(?:number of|times their|\d) turns": "iterations, trip count",
    r"hindrance": "reason",
    r"moods": "machine drift",
    r"whose luck": "process-to-process variation",
    r"gone through": "walked",
}
NAMES = {
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

# Files that still have the word. The list only shrinks: a file that no longer has its word must leave it.
EXCEPTIONS: dict[str, set[str]] = {}


def _strings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, text) of each string, those of f-strings and docstrings included. A string may be broken over lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, re.sub(r"\s+", " ", node.value)
        elif isinstance(node, ast.JoinedStr):
            parts = [p.value if isinstance(p, ast.Constant) else "0" for p in node.values]
            yield node.lineno, re.sub(r"\s+", " ", "".join(map(str, parts)))


def _printed(tree: ast.AST) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for line, text in _strings(tree):
        for word in PRINTED:
            if re.search(rf"\b{word}\b", text, re.IGNORECASE):
                found.setdefault(word, []).append(line)
    return found


def _named(tree: ast.AST) -> dict[str, list[int]]:
    """By the words of a name: `_told_twice` has told and twice, `GridWish` has grid and wish."""
    found: dict[str, list[int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, DEFINITIONS):
            parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", node.name)
            for word in NAMES:
                if any(re.fullmatch(word, part, re.IGNORECASE) for part in parts):
                    found.setdefault(word, []).append(node.lineno)
    return found


def _unexpected(file: Path) -> tuple[list[str], set[str]]:
    """(what is wrong, the words that are expected here and no longer are)"""
    name = file.relative_to(ROOT / "src").as_posix()
    expected = EXCEPTIONS.get(name, set())
    tree = parse(file)
    found = {w: (PRINTED[w], at) for w, at in _printed(tree).items()}
    for word, at in _named(tree).items():
        found[f"def {word}"] = (NAMES[word], at)
    wrong = [f"{name}:{at[0]}: {w!r}; say {say}" for w, (say, at) in found.items() if w not in expected]
    return wrong, expected - found.keys()


def test_no_forbidden_word_is_printed_or_names_anything() -> None:
    assert [line for file in FILES for line in _unexpected(file)[0]] == []


def test_the_list_of_exceptions_only_shrinks() -> None:
    known = {file.relative_to(ROOT / "src").as_posix(): file for file in FILES}

    gone = {name: words for name in EXCEPTIONS if (words := _unexpected(known[name])[1])} if EXCEPTIONS else {}

    assert set(EXCEPTIONS) <= known.keys()
    assert gone == {}, "take these out of EXCEPTIONS"


@pytest.mark.parametrize(
    ("source", "word"),
    [
        ('x = "the fast back\\nend"', "back ends?"),
        ('def f(n):\n    """Says."""\n    return f"{n} turns"', r"(?:number of|times their|\d) turns"),
        ("def _told_twice() -> None: ...", "def drawn|shown|told|said"),
        ("class GridWish: ...", "def wish|wished"),
    ],
)
def test_a_forbidden_word_is_seen(source: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    file = tmp_path / "src" / "a.py"
    file.parent.mkdir()
    file.write_text(source, encoding="utf-8")

    wrong, _ = _unexpected(file)

    assert [repr(word) in line for line in wrong] == [True]


def test_no_public_name_is_a_forbidden_word() -> None:
    import benchax

    every = [*NAMES, *PRINTED]
    assert [n for n in benchax.__all__ if any(re.fullmatch(w, n, re.IGNORECASE) for w in every)] == []


GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("where", sorted(set(re.findall(r"`(benchax\.[\w.]+)`", GLOSSARY))))
def test_what_the_glossary_points_at_exists(where: str) -> None:
    parts = where.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for part in parts[n:]:
            # A field without a default is no attribute of its class.
            found = getattr(found, part, None) or getattr(found, "__annotations__", {}).get(part)
            assert found is not None, f"{where}: there is no {part}"
        return
    pytest.fail(where)


def test_no_two_classes_share_a_name() -> None:
    where = [
        (name, file.stem)
        for file in FILES
        for name in re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    names = [name for name, _ in where]

    assert [(name, stem) for name, stem in where if names.count(name) > 1] == []
