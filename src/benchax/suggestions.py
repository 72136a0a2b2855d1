"""Guesses the user's intention if they pass a program, a file of tests or a file of functions instead of benchmarks."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Sequence
from pathlib import Path

A_FUNCTION = "benchax run jax.numpy:sort f32[1000000]"
MOST_NAMES = 4


def suggest_for_words(words: Sequence[str]) -> str:
    """How a program is looked at, or a function measured, that `words` are; empty if they are neither."""
    parts = [part for word in words for part in word.split()]
    if parts and ":" in parts[0]:
        return f"a function is measured by: benchax run {shlex.join(parts)}"
    return _suggest_for_program(parts) if any(Path(part).suffix == ".py" for part in parts) else ""


def _suggest_for_program(parts: Sequence[str]) -> str:
    program = shlex.join(parts if Path(parts[0]).suffix != ".py" else ["python", *parts])
    return f"where a program spends its time is told by: benchax profile -- {program}"


def suggest_for_file(file: Path) -> str:
    """How a Python file without benchmarks is measured: as tests, by its functions, or as a whole program."""
    named = shlex.quote(str(file))
    if file.name.startswith("test_"):
        return f"tests with the fixture `benchmark` are measured by: pytest {named} --benchax-fixture"
    of_program = _suggest_for_program([str(file)])
    if not (names := _functions(file)):
        return of_program
    listed = ", ".join(names[:MOST_NAMES]) + ", …" * (len(names) > MOST_NAMES)
    # Specs in quotes: zsh takes brackets for a pattern.
    return f"a function of it ({listed}) is measured by: benchax run {named}:{names[0]} 'f32[8,128]'; {of_program}"


def _functions(file: Path) -> list[str]:
    """Those that the file defines for others, in their order."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # whoever imports it says so
        return []
    return [node.name for node in body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
