"""Reads a Python file as a tree, and finds the functions and loops around one of its lines."""

from __future__ import annotations

import ast
import functools
import linecache
from typing import Any

Loop = ast.For | ast.AsyncFor | ast.While | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def tree_of(file: str) -> ast.Module | None:
    """Returns the file as Python ran it, or None if there is no file to read. Callers must not change the tree."""
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    return _parse("".join(lines)) if lines else None


@functools.lru_cache(maxsize=50)
def _parse(text: str) -> ast.Module | None:
    """Parses each text once, because several questions are asked about it line after line."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError):
        return None


def around(tree: ast.AST, line: int, kinds: Any) -> list[Any]:
    """Nodes of these kinds that have this line, innermost first."""
    found = [node for node in ast.walk(tree) if isinstance(node, kinds) and holds(node, line)]
    return sorted(found, key=lambda node: (node.end_lineno - node.lineno, -node.lineno))


def loops_around(tree: ast.AST, line: int) -> list[Loop]:
    """All loops that have this line, their heads included, within the innermost function that has it. A lambda
    belongs to the code around it."""
    return around(next(iter(around(tree, line, ast.FunctionDef | ast.AsyncFunctionDef)), tree), line, Loop)


def holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", 0), getattr(node, "end_lineno", None) or 0
    return first <= line <= last
