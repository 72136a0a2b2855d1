"""Which loop of Python a line stands in, and in which function: what the text of the file says.

A program that was traced has no loops of Python any more, and many instructions from one line are no proof of one:
`optax` makes hundreds in one call. The file says so, as long as it is there and was not changed since.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

MOST_BYTES = 4_000_000
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class PlaceInFile(NamedTuple):
    """What is around a line."""

    function: str
    """The innermost one; empty: it is of the module."""
    loop_line: int | None
    """Where the innermost loop of that function begins; None: the line is in none."""


def place_of(source: str) -> PlaceInFile | None:
    """Of file.py:12; None where the file cannot be read."""
    file, _, line = source.rpartition(":")
    tree = _tree(file)
    if tree is None or not line.isdigit():
        return None
    function, loop = "", None
    node: ast.AST | None = tree
    while node is not None:
        if isinstance(node, _FUNCTIONS):
            function, loop = _name(node), None
        elif isinstance(node, _LOOPS) and _repeats(node, int(line)):
            loop = node.lineno
        node = next((child for child in _inside(node) if _holds(child, int(line))), None)
    return PlaceInFile(function, loop)


def _inside(node: ast.AST) -> Iterable[ast.AST]:
    """Decorators and defaults are no part of what a function repeats."""
    if isinstance(node, ast.Lambda):
        return [node.body]
    return node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ast.iter_child_nodes(node)


def _name(function: Function) -> str:
    return "<lambda>" if isinstance(function, ast.Lambda) else function.name


def _repeats(loop: ast.AST, line: int) -> bool:
    """What is iterated over is computed once."""
    once = [loop.iter] if isinstance(loop, ast.For) else []
    once += loop.orelse if isinstance(loop, ast.For | ast.While) else []
    return not any(_holds(part, line) for part in once) or (isinstance(loop, ast.For) and _is_on(loop.body, line))


def _is_on(body: list[ast.stmt], line: int) -> bool:
    return any(_holds(part, line) for part in body)


def _holds(node: ast.AST, line: int) -> bool:
    first, last = getattr(node, "lineno", None), getattr(node, "end_lineno", None)
    if first is None or last is None:  # as arguments and aliases: what is in them may hold it
        return any(_holds(child, line) for child in ast.iter_child_nodes(node))
    return first <= line <= last


@lru_cache(maxsize=200)
def _tree(file: str) -> ast.Module | None:
    try:
        path = Path(file)
        return ast.parse(path.read_bytes()) if path.stat().st_size <= MOST_BYTES else None
    except (OSError, SyntaxError, ValueError):  # not there, or none of Python
        return None
