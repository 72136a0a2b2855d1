"""The source of a function: its file, its lines, and its syntax tree with the line numbers of the file.

Read from the file as a whole, not by `inspect.getsource`, which cuts lambdas and decorated functions out of their lines
so that they no longer parse.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Source:
    """Where a function is written."""

    file: str
    first_line: int
    """Of its first decorator, or of its `def`."""
    text: str
    """Its own lines."""
    tree: Function
    """Its node; `lineno` counts in the file."""
    module: ast.Module
    """The whole file."""
    lines: tuple[str, ...]
    """Of the whole file; line n is lines[n - 1]."""

    @property
    def def_line(self) -> int:
        return self.tree.lineno


def source_of(fn: Callable[..., Any]) -> Source | None:
    """None where there is none to read: builtins, compiled code, functions made by `exec`."""
    code = code_of(fn)
    if code is None:
        return None
    linecache.checkcache(code.co_filename)
    lines = tuple(line.rstrip("\n") for line in linecache.getlines(code.co_filename))
    try:
        module = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError):  # changed since it was loaded, or no Python at all
        return None
    nodes = (node for node in ast.walk(module) if isinstance(node, Function))
    node = next((node for node in nodes if _first_line(node) == code.co_firstlineno), None)
    if node is None:
        return None
    first = _first_line(node)
    return Source(code.co_filename, first, "\n".join(lines[first - 1 : node.end_lineno]), node, module, lines)


def code_of(fn: Callable[..., Any]) -> CodeType | None:
    """Of the user's own function, under partials, jits, methods and callable objects."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    try:
        fn = inspect.unwrap(fn)
    except ValueError:  # wraps itself
        return None
    if isinstance(fn, functools.partial):
        return code_of(fn)
    fn = getattr(fn, "__func__", fn)
    if not hasattr(fn, "__code__"):
        fn = type(fn).__call__
    code = getattr(fn, "__code__", None)
    return code if isinstance(code, CodeType) else None


def _first_line(node: Function) -> int:
    """As `co_firstlineno` counts: decorators belong to the function."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])
