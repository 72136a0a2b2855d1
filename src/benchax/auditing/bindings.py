"""The values of names, parameters and attributes, according to the text of one file; `origins.py` follows them.

An expression comes with a path to the relevant part. For `b.x` after `a, b = make()`, the path into the result of
`make` is ("1", "x").
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from benchax.auditing.syntax import Function, holds, last_name

ELEMENT = "*"
"""In a path: what an iteration gives, at whatever place."""
Path = tuple[str, ...]


def calls_on(tree: ast.AST, line: int) -> Iterator[ast.Call]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call) and holds(node, line))


def bound_calls(tree: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """x = Class(...), by its name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and len(node.targets) == 1:
            yield node.value, last_name(node.targets[0])


def definition_of(tree: ast.AST, name: str) -> ast.FunctionDef | None:
    """The one function of this name in the file."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]
    return found[0] if len(found) == 1 else None


def class_of(tree: ast.AST, scope: ast.FunctionDef) -> ast.ClassDef | None:
    return next((node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and scope in node.body), None)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Yields nodes, without the content of inner functions and classes."""
    for child in ast.iter_child_nodes(scope):
        if not isinstance(child, Function | ast.ClassDef):
            yield child
            yield from own_nodes(child)


def parameters_of(scope: ast.FunctionDef | ast.Lambda | None, *, own: bool = False) -> list[str]:
    """Returns the parameters of a function or lambda, without the object that a method is called on; `own`: with it."""
    if scope is None:
        return []
    names = [arg.arg for arg in (*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs)]
    names += [arg.arg for arg in (scope.args.vararg,) if own and arg is not None]
    return names if own else [name for name in names if name not in ("self", "cls")]


def fields_of(owner: ast.ClassDef) -> list[str]:
    """Returns the constructor's arguments: parameters of `__init__`, or fields of a dataclass."""
    init = next((one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    if init is not None:
        return parameters_of(init)
    return [last_name(one.target) for one in owner.body if isinstance(one, ast.AnnAssign)]


def argument_of(call: ast.Call, name: str, parameters: Sequence[str]) -> tuple[ast.expr, Path] | None:
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value, ()
    at = parameters.index(name) if name in parameters else None
    if at is None:
        return None
    for i, arg in enumerate(call.args):
        if isinstance(arg, ast.Starred):
            return arg.value, (str(at - i),)
        if i == at:
            return arg, ()
    return None


def default_of(scope: ast.FunctionDef, name: str) -> ast.expr | None:
    positional = [arg.arg for arg in (*scope.args.posonlyargs, *scope.args.args)]
    pairs = [*zip(reversed(positional), reversed(scope.args.defaults), strict=False)]
    pairs += [
        (arg.arg, value) for arg, value in zip(scope.args.kwonlyargs, scope.args.kw_defaults, strict=True) if value
    ]
    return dict(pairs).get(name)


def field_default(owner: ast.ClassDef, name: str) -> ast.expr | None:
    fields = [one for one in owner.body if isinstance(one, ast.AnnAssign) and last_name(one.target) == name]
    return fields[0].value if fields else None


def bindings_of(scope: ast.AST, name: str) -> Iterator[tuple[ast.expr, Path]]:
    """Yields the values of a name in a function or a module, without inner functions, and the relevant part of each."""
    for node in own_nodes(scope):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from ((node.value, path) for path in _paths_to(target, name))
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr | ast.AugAssign) and node.value is not None:
            yield from ((node.value, path) for path in _paths_to(node.target, name))
        elif isinstance(node, ast.For | ast.comprehension):
            yield from ((node.iter, (ELEMENT, *path)) for path in _paths_to(node.target, name))
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from ((node.context_expr, path) for path in _paths_to(node.optional_vars, name))


def _paths_to(target: ast.AST, name: str) -> Iterator[Path]:
    """Yields the places of a name in an assignment target: ("1",) for `a, name = …`."""
    if isinstance(target, ast.Name) and target.id == name:
        yield ()
    elif isinstance(target, ast.Tuple | ast.List):
        for i, part in enumerate(target.elts):
            yield from ((str(i), *path) for path in _paths_to(part, name))


def attribute_values(owner: ast.ClassDef, name: str) -> Iterator[tuple[ast.expr, Path]]:
    """Yields the values that methods of a class assign to an attribute of `self`."""
    for node in ast.walk(owner):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            parts = enumerate(target.elts) if isinstance(target, ast.Tuple) else [(None, target)]
            for i, one in parts:
                if isinstance(one, ast.Attribute) and one.attr == name and last_name(one.value) == "self":
                    yield node.value, () if i is None else (str(i),)


def element_of(node: ast.Tuple | ast.List | ast.Dict | ast.ListComp | ast.GeneratorExp, part: str) -> ast.expr | None:
    if isinstance(node, ast.ListComp | ast.GeneratorExp):
        return node.elt
    if isinstance(node, ast.Dict):
        named = zip(node.keys, node.values, strict=True)
        found = [value for key, value in named if isinstance(key, ast.Constant) and str(key.value) == part]
        return found[0] if len(found) == 1 else None
    if part == ELEMENT:
        return node.elts[0] if len(node.elts) == 1 else None
    at = int(part) if part.isdecimal() else len(node.elts)
    return node.elts[at] if at < len(node.elts) else None
