"""Lines that have to do with a value that a call is given: where it is made, declared, or jitted, read from the file.

A finding names all of them (`related=`), and chooses none: the text of a file does not tell which one to change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from benchax.auditing.syntax import (
    callee_name,
    calls,
    calls_on,
    def_of,
    holds,
    jits_of_new_functions,
    last_name,
    loops_around,
    scopes_around,
    tree_of,
)
from benchax.results.audit import Where

JITS = ("jit", "filter_jit", "pjit")
MOST = 4
"""Lines of one kind that are named."""
MOST_STEPS = 40
"""How far a value is followed through the file."""
_NAMES = re.compile(r"[A-Za-z_]\w*")
Place = tuple[str, Where | None]


def made_at(called: Where | None, function: str, path: str) -> list[Place]:
    """The lines that give a value to an argument of a call, or to a part of it.

    Follows names, attributes, parameters, and functions of the same file backwards, by name.

    Args:
        called: the line of the call.
        function: its name.
        path: of the argument, by the function's own names: "state.ema", "batch['x']".
    """
    tree = tree_of(called[0]) if called is not None else None
    names = _NAMES.findall(path)
    if called is None or tree is None or not names:
        return []
    given = [
        arg
        for call in sorted(calls_on(tree, called[1]), key=lambda node: (node.end_lineno or 0) - node.lineno)
        for arg in _arguments(tree, call, function, names[0])
    ]
    # The name of a part is the best clue: state.ema is set by `ema=…` or `.ema = …`.
    lines = [line for name in reversed(names[1:]) for line in _lines_that_set(tree, name)]
    waiting = [(name, called[1]) for node in given for name in _names_in(node)]
    met = set[str]()
    while waiting and len(met) < MOST_STEPS:
        name, near = waiting.pop(0)
        if name in met:
            continue
        met.add(name)
        for node in _values_of(tree, name, near):
            lines.append(node.lineno)
            waiting += [(other, node.lineno) for other in _names_in(node)]
    return [("made here", (called[0], line)) for line in _nearest(lines, called[1])]


def declared_at(defined: Where | None, function: str, setting: str) -> list[Place]:
    """The lines that give a function a setting of jax.jit whose name begins with `setting`."""
    tree = tree_of(defined[0]) if defined is not None else None
    found = [] if tree is None or defined is None else _jits_of(tree, function, defined[1])
    named = [node for node in found if any(_has(part, setting) for part in ast.walk(node))]
    return [(f"{setting} is set here", (defined[0], node.lineno)) for node in named if defined is not None]


def jitted_at(defined: Where | None, function: str) -> list[Place]:
    """The lines that jit a function: its decorator, or calls of jax.jit."""
    tree = tree_of(defined[0]) if defined is not None else None
    if tree is None or defined is None:
        return []
    return [("jitted here", (defined[0], node.lineno)) for node in _jits_of(tree, function, defined[1])]


def jitted_around(called: Where | None, defined: Where | None, function: str) -> list[Place]:
    """The lines that jit a new function in the loops and functions around a call, or that make the function."""
    tree = tree_of(called[0]) if called is not None else None
    if tree is None or called is None:
        return []
    around = [*loops_around(tree, called[1]), *scopes_around(tree, called[1])]
    found = next((jits for node in around if (jits := list(jits_of_new_functions(node)))), [])
    if found:
        return [("jitted here", (called[0], line)) for line in _nearest([call.lineno for call in found], 0)]
    jits = jitted_at(defined, function)
    return [*jits, *(place for _, line in jits for place in callers_of(line, "made by this call"))]


def named_at(near: Where | None, label: str, *names: str) -> list[Place]:
    """The lines of a file that name one of these, as code or as a text; those nearest to a line of it."""
    tree = tree_of(near[0]) if near is not None else None
    if tree is None or near is None:
        return []
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name | ast.Constant)]
    lines = [node.lineno for node in found if (last_name(node) or getattr(node, "value", None)) in names]
    return [(label, (near[0], line)) for line in _nearest(lines, near[1])]


def _nearest(lines: Sequence[int], near: int) -> list[int]:
    return sorted(sorted(set(lines) - {near}, key=lambda line: abs(line - near))[:MOST])


def _arguments(tree: ast.AST, call: ast.Call, function: str, name: str) -> Iterator[ast.expr]:
    """The argument of a call for a parameter; all its arguments if the text does not show which one it is."""
    by_name = [keyword.value for keyword in call.keywords if keyword.arg == name]
    scopes = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == function]
    names = [arg.arg for arg in (*scopes[0].args.posonlyargs, *scopes[0].args.args)] if len(scopes) == 1 else []
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    is_exact = name in names and len(call.args) > names.index(name) and callee_name(call) == function
    yield from by_name or ([call.args[names.index(name)]] if is_exact else call.args)


def _names_in(node: ast.AST) -> list[str]:
    """Names and attributes that a value is made of, and functions that make it."""
    return [name for one in ast.walk(node) if (name := last_name(one)) and name not in ("self", "jnp", "np", "jax")]


def _values_of(tree: ast.AST, name: str, line: int) -> Iterator[ast.expr]:
    """Values of a name or attribute in the functions around a line and in the module, and results of a function."""
    scopes = [*scopes_around(tree, line), tree]
    found = next((values for scope in scopes if (values := list(_given(scope, name)))), [])
    yield from found
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Return | ast.Yield) and one.value)
        elif isinstance(node, ast.keyword) and node.arg == name and not found:
            yield node.value


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            is_of_it = any(last_name(one) == name for target in targets for one in ast.walk(target))
            yield from [node.value] if is_of_it else []
        elif isinstance(node, ast.For | ast.comprehension):
            yield from [node.iter] if any(last_name(one) == name for one in ast.walk(node.target)) else []


def _lines_that_set(tree: ast.AST, name: str) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword):
            yield from [node.value.lineno] if node.arg == name else []
        elif isinstance(node, ast.Attribute):
            yield from [node.lineno] if node.attr == name and isinstance(node.ctx, ast.Store) else []
        elif isinstance(node, ast.Call):
            yield from [node.lineno] if callee_name(node) == "tree_at" and _mentions(node, name) else []


def _mentions(node: ast.AST, name: str) -> bool:
    return any(last_name(one) == name for one in ast.walk(node))


def _jits_of(tree: ast.AST, function: str, first_line: int) -> list[ast.expr]:
    """Decorators that jit a function, and calls of jax.jit that are given it."""
    node = def_of(tree, first_line)
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    found: list[ast.expr] = [one for one in decorators if any(last_name(part) in JITS for part in ast.walk(one))]
    name = function.rpartition(".")[2]
    given = [call for call in calls(tree, *JITS, "partial") if call.args]
    found += [
        call
        for call in given
        if last_name(call.args[0]) == name or (isinstance(call.args[0], ast.Lambda) and holds(call.args[0], first_line))
    ]
    return list({id(one): one for one in found}.values())


def _has(node: ast.AST, setting: str) -> bool:
    return isinstance(node, ast.keyword) and (node.arg or "").startswith(setting)


def callers_of(line: Where | None, label: str = "called here") -> list[Place]:
    """The lines of loops that call the function around a line."""
    tree = tree_of(line[0]) if line is not None else None
    scopes = scopes_around(tree, line[1]) if tree is not None and line is not None else []
    names = [scope.name for scope in scopes if isinstance(scope, ast.FunctionDef)]
    if tree is None or line is None or not names or loops_around(tree, line[1]):
        return []
    found = [call.lineno for call in calls(tree, *names[:1]) if loops_around(tree, call.lineno)]
    return [(label, (line[0], at)) for at in _nearest(found, line[1])]
