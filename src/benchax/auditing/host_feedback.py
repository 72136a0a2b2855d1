"""What the user's file hands from one iteration of a loop to the next on the host: the action of a policy that an
environment in Python answers with the next observation. JAX sees no array go from one call to the other."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from benchax.auditing.bindings import calls_on
from benchax.auditing.syntax import Loop, callee_name, calls, holds, innermost_loop, scopes_around

Assigned = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr


def loop_around(tree: ast.AST, line: int) -> Loop | None:
    """The innermost loop around a line, within its function."""
    loop, scopes = innermost_loop(tree, line), scopes_around(tree, line)
    return loop if loop is not None and (not scopes or holds(scopes[0], loop.lineno)) else None


def needs_own_result(tree: ast.AST, line: int, name: str) -> bool:
    """Does the call of this name on this line read what the loop around it has made of an earlier result of it? Of a
    function without a loop, as a method that acts, its calls are asked in their stead."""
    if (loop := loop_around(tree, line)) is not None:
        return _is_fed_back(tree, loop, line, name)
    scope = next((one for one in scopes_around(tree, line) if isinstance(one, ast.FunctionDef)), None)
    if scope is None:
        return False
    outside = (call.lineno for call in calls(tree, scope.name) if not holds(scope, call.lineno))
    return any(_is_fed_back(tree, loop, at, scope.name) for at in outside if (loop := innermost_loop(tree, at)))


def _is_fed_back(tree: ast.AST, loop: ast.AST, line: int, name: str) -> bool:
    if not isinstance(loop, ast.For | ast.While):
        return False
    made, on_line = set[str](), list(calls_on(loop, line))
    # A function may be called by a name that is not its own.
    asked = [call for call in on_line if callee_name(call) == name] or on_line[:1]
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom))
    others = {"", *(alias.asname or alias.name for node in imports for alias in node.names)}
    while (more := set(_made_of(loop, asked, made)) - others) - made:
        made |= more
    return any(_reads(argument, made) for call in asked for argument in (*call.args, *call.keywords))


def _made_of(loop: ast.AST, asked: list[ast.Call], made: set[str]) -> Iterator[str]:
    """Names, and paths of attributes, that are given a value, changed by a method, or chosen, by what is made of the
    result so far."""

    def is_of_it(node: ast.AST | None) -> bool:
        return node is not None and (any(one in asked for one in ast.walk(node)) or _reads(node, made))

    for node in ast.walk(loop):
        if isinstance(node, Assigned) and is_of_it(node.value):
            yield from _targets(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            # What a method is given may stay in its object: env.step(action).
            if any(map(is_of_it, (*node.args, *node.keywords))):
                yield _path(node.func.value)
        elif isinstance(node, ast.If) and is_of_it(node.test):
            for one in ast.walk(node):
                if isinstance(one, Assigned):
                    yield from _targets(one)


def _targets(node: Assigned) -> Iterator[str]:
    """An array that is filled by index is no value that the next iteration needs."""
    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
        for leaf in target.elts if isinstance(target, ast.Tuple | ast.List) else [target]:
            yield _path(leaf.value if isinstance(leaf, ast.Starred) else leaf)


def _reads(node: ast.AST, made: set[str]) -> bool:
    paths = (_path(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute))
    return any(path in made for path in paths)


def _path(node: ast.AST) -> str:
    """x, self.env; empty for what has no name."""
    if isinstance(node, ast.Attribute):
        before = _path(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""
