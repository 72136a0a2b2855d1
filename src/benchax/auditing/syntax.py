"""Reads the user's files as Python: the source of a function, the loop around a line, and calls that make a jitted
function.

A function is read from the whole file. `inspect.getsource` would cut lambdas and decorated functions out of their
lines, so that they no longer parse. An unreadable file (no file, no Python, changed since) gives nothing; rules then
use observations from the run.

Findings name all lines that have to do with a value, and choose none. The text of a file doesn't show which one to
change.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from benchax.errors import NotMeasured
from benchax.results.audit import Where
from benchax.source_files import is_typed
from benchax.source_trees import Function, Loop, around, holds, loops_around, tree_of
from benchax.wrappers import unwrap

Repeat = Loop | ast.Call
"""Also a call that calls what it is given again and again."""
FOLDS = ("reduce", "accumulate")
"""Functions of the standard library that call what they are given again and again."""


NOWHERE: Where = ("", 0)
"""Stands in for an unknown line: nothing is found around it."""


def readable(file: str) -> ast.Module:
    """The tree of a file, which is empty if the file can't be read."""
    return tree_of(file) or ast.Module([], [])


Spot = Where | str | None
"""A line as a pair, or as the index, the log, and a watch have it: train.py:31."""


def where_of(spot: Spot) -> Where | None:
    """train.py:31 as (absolute file, 31); None where it is no such text."""
    if isinstance(spot, tuple):
        return spot
    file, colon, line = (spot or "").rpartition(":")
    if not (colon and file and line.isdecimal()):
        return None
    return file if is_typed(file) else str(Path(file).absolute()), int(line)


def innermost_repeat(tree: ast.AST, line: int) -> Repeat | None:
    """The shortest loop, comprehension, or call of `map` or of one of `FOLDS` that has this line."""
    return next((node for node in around(tree, line, Repeat) if not isinstance(node, ast.Call) or _repeats(node)), None)


def _repeats(call: ast.Call) -> bool:
    # jax.tree.map and jax.lax.map are different functions.
    is_own_map = isinstance(call.func, ast.Name) and call.func.id == "map"
    return len(call.args) > 1 and (is_own_map or callee_name(call) in FOLDS)


def kind_of(loop: Repeat) -> str:
    if isinstance(loop, ast.Call):
        return f"call of {callee_name(loop)}"
    if isinstance(loop, ast.For | ast.AsyncFor):
        return "for loop"
    return "while loop" if isinstance(loop, ast.While) else "comprehension"


def def_of(tree: ast.AST | None, line: int) -> Function | None:
    """The function whose code begins at this line, as Python counts: decorators belong to it."""
    nodes = ast.walk(tree) if tree is not None else ()
    return next((node for node in nodes if isinstance(node, Function) and first_line(node) == line), None)


def last_name(node: ast.AST | None) -> str:
    """jit of jax.jit, x of x; empty for what has no name."""
    return getattr(node, "attr", getattr(node, "id", ""))


def path_of(node: ast.AST) -> str:
    """x, self.env; empty for what has no name."""
    if isinstance(node, ast.Attribute):
        before = path_of(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def callee_name(call: ast.Call) -> str:
    """jit of jax.jit(f)."""
    return last_name(call.func)


def calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Calls of functions with one of these last names."""
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call) and callee_name(node) in names)


def passed_functions(tree: ast.AST, arguments: Sequence[ast.expr]) -> Iterator[ast.FunctionDef | ast.Lambda]:
    """The arguments of a call that are lambdas, or functions of this file."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for argument in arguments:
        found = argument if isinstance(argument, ast.Lambda) else functions.get(path_of(argument))
        if found is not None:
            yield found


def jits_of_new_functions(tree: ast.AST) -> Iterator[ast.Call]:
    """jax.jit(lambda …), jax.jit(partial(…)), and jax.jit(f) of an f that is made inside of `tree`."""
    made = set(_made_in(tree))
    for call in calls(tree, "jit"):
        if call.args and (_makes(call.args[0]) or getattr(call.args[0], "id", None) in made):
            yield call


def _makes(node: ast.AST) -> bool:
    return isinstance(node, ast.Lambda) or (isinstance(node, ast.Call) and callee_name(node) == "partial")


def _made_in(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node is not tree:
            yield node.name
        elif isinstance(node, ast.Assign) and _makes(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


class Source(NamedTuple):
    """Where a function is written."""

    file: str
    tree: Function
    """Its node; `lineno` counts in the file."""


def source_of(fn: Callable[..., Any]) -> Source | None:
    """Returns None if there is no source to read: builtins, compiled code, functions made by `exec`."""
    code = code_of(fn)
    node = def_of(tree_of(code.co_filename), code.co_firstlineno) if code is not None else None
    return Source(code.co_filename, node) if code is not None and node is not None else None


def check_readable(fn: Callable[..., Any]) -> None:
    """For rules that would take what they cannot read for what is not there.

    Raises:
        NotMeasured: it is written in Python, and its source cannot be read.
    """
    code = code_of(fn)
    if code is not None and source_of(fn) is None:
        what = "typed at a prompt of Python" if is_typed(code.co_filename) else "made by a program, or has been edited"
        raise NotMeasured(f"the source of the function cannot be read: it was {what}")


def code_of(fn: Callable[..., Any]) -> CodeType | None:
    """The code of the user's own function, under partials, jits, methods and callable objects."""
    plain = unwrap(fn)
    code = getattr(plain, "__code__", None) or getattr(type(plain).__call__, "__code__", None)
    return code if isinstance(code, CodeType) else None


def first_line(node: Function) -> int:
    """As `co_firstlineno` counts: decorators belong to the function."""
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


JITS = ("jit", "filter_jit", "pjit")
MOST = 4
"""Lines of one kind that are named."""
MOST_STEPS = 40
"""How far a value is followed through the file."""
_NAMES = re.compile(r"[A-Za-z_]\w*")
Place = tuple[str, Spot]


def made_at(called: Spot, function: str, path: str) -> list[Place]:
    """The lines that give a value to an argument of a call, or to a part of it.

    Follows names, attributes, parameters, and functions of the same file backwards, by name.

    Args:
        called: the line of the call.
        function: its name.
        path: of the argument, by the function's own names: "state.ema", "batch['x']".
    """
    (file, line), names = where_of(called) or NOWHERE, _NAMES.findall(path)
    tree = readable(file)
    if not names:
        return []
    given = [arg for call in around(tree, line, ast.Call) for arg in _arguments(tree, call, function, names[0])]
    # The name of a part is the best clue: `ema=…` or `.ema = …` sets state.ema, and a dict sets batch["x"].
    lines = [
        line for name in reversed(names[1:]) for line in _lines_that_set(tree, name, is_key=f".{name}" not in path)
    ]
    waiting = [(name, line) for node in given for name in _names_in(node)]
    met = set[tuple[str, int]]()
    while waiting and len(met) < MOST_STEPS:
        name, near = step = waiting.pop(0)
        if step in met:
            continue
        met.add(step)
        for node in _values_of(tree, name, near):
            lines.append(node.lineno)
            waiting += [(other, node.lineno) for other in _names_in(node)]
    return [("made here", (file, at)) for at in _nearest(lines, line)]


def declared_at(defined: Spot, function: str, setting: str) -> list[Place]:
    """The lines that give a function a setting of jax.jit whose name begins with `setting`."""
    file, line = where_of(defined) or NOWHERE
    jits = [
        (node, [one.arg or "" for one in ast.walk(node) if isinstance(one, ast.keyword)])
        for node in _jits_of(file, function, line)
    ]
    named = (node for node, names in jits if any(name.startswith(setting) for name in names))
    return [(f"{setting} is set here", (file, node.lineno)) for node in named]


def jitted_at(defined: Spot, function: str) -> list[Place]:
    """The lines that jit a function: its decorator, or calls of jax.jit."""
    file, line = where_of(defined) or NOWHERE
    return [("jitted here", (file, node.lineno)) for node in _jits_of(file, function, line)]


def jitted_around(called: Spot, defined: Spot, function: str) -> list[Place]:
    """The lines that jit a new function in the loops and functions around a call, or that make the function."""
    file, at = where_of(called) or NOWHERE
    tree = readable(file)
    nodes = [*loops_around(tree, at), *around(tree, at, Function)]
    found = next((jits for node in nodes if (jits := list(jits_of_new_functions(node)))), [])
    if found:
        return [("jitted here", (file, line)) for line in _nearest([call.lineno for call in found], 0)]
    jits = jitted_at(defined, function)
    return [*jits, *(place for _, line in jits for place in callers_of(line, "made by this call"))]


def named_at(near: Spot, label: str, *names: str) -> list[Place]:
    """The lines of a file that name one of these, as code or as a text; those nearest to a line of it."""
    file, at = where_of(near) or NOWHERE
    found = [node for node in ast.walk(readable(file)) if isinstance(node, ast.Attribute | ast.Name | ast.Constant)]
    lines = [node.lineno for node in found if (last_name(node) or getattr(node, "value", None)) in names]
    return [(label, (file, line)) for line in _nearest(lines, at)]


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
    scopes = [*around(tree, line, Function), tree]
    found = next((values for scope in scopes if (values := list(_given(scope, name)))), [])
    yield from found
    for scope in scopes:
        if isinstance(scope, ast.FunctionDef) and name in [arg.arg for arg in scope.args.args] and not found:
            yield from (arg for call in calls(tree, scope.name) for arg in _arguments(tree, call, scope.name, name))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            yield from (one.value for one in ast.walk(node) if isinstance(one, ast.Return | ast.Yield) and one.value)
        elif isinstance(node, ast.keyword) and node.arg == name and not found:
            yield node.value


def _given(scope: ast.AST, name: str) -> Iterator[ast.expr]:
    """Values that a scope gives to a name, and that it or the functions inside give to an attribute."""
    own = {id(node) for node in nodes_of_scope(scope)}

    def is_of_it(node: ast.AST, target: ast.AST) -> bool:
        parts = (one for one in ast.walk(target) if last_name(one) == name)
        return any(id(node) in own or isinstance(one, ast.Attribute) for one in parts)

    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from [node.value] if any(is_of_it(node, target) for target in targets) else []
        elif isinstance(node, ast.For | ast.comprehension):
            yield from [node.iter] if is_of_it(node, node.target) else []


def nodes_of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Without those in the functions inside, whose names are not known outside."""
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def _lines_that_set(tree: ast.AST, name: str, *, is_key: bool) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            is_setting = not is_key or callee_name(node) == "dict"
            yield from (one.value.lineno for one in node.keywords if is_setting and one.arg == name)
            is_replaced = callee_name(node) == "tree_at" and any(last_name(one) == name for one in ast.walk(node))
            yield from [node.lineno] if is_replaced else []
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value.lineno for key, value in pairs if is_key and getattr(key, "value", None) == name)
        elif isinstance(node, ast.Attribute):
            yield from [node.lineno] if node.attr == name and isinstance(node.ctx, ast.Store) else []


def _jits_of(file: str, function: str, first_line: int) -> list[ast.expr]:
    """Decorators that jit a function, and calls of jax.jit that are given it."""
    tree = readable(file)
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


def callers_of(line: Spot, label: str = "called here") -> list[Place]:
    """The lines of loops that call the function around a line."""
    file, near = where_of(line) or NOWHERE
    tree = readable(file)
    names = [scope.name for scope in around(tree, near, ast.FunctionDef)]
    if loops_around(tree, near):
        return []
    found = [call.lineno for call in calls(tree, *names[:1]) if loops_around(tree, call.lineno)]
    return [(label, (file, at)) for at in _nearest(found, near)]
