"""The values that a function reads during tracing in addition to its arguments: globals, its closure, attributes of its
object.

A compiled call keeps the first value that it read. So benchax reads these values when a function was compiled, and
again at later calls (`recorder/functions.py`). It finds names in the source: of the function, and of the user's
functions that it calls by name. Numbers, texts and arrays count. Reading them runs no code of the user, and only weak
references hold arrays.
"""

from __future__ import annotations

import ast
import inspect
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from benchax.auditing.syntax import Function, callee_name, path_of, source_of
from benchax.source_files import owner_of

MISSING = object()
MOST_LEAVES = 50
"""Arrays of a container."""
PLAIN = (bool, int, float, complex, str)


@dataclass(frozen=True)
class OuterValue:
    """One of them, as it was."""

    name: str
    """self.temperature"""
    where: str
    """file:line"""
    read: Callable[[], Any]
    """Reads the present value; MISSING if its owner is gone."""
    was: tuple[Any, ...]

    @property
    def has_changed(self) -> bool:
        now = self.read()
        return now is not MISSING and not _is_same(self.was, _keep(now))

    @property
    def change(self) -> str:
        """from 2.0 to 1.7"""
        first, now = self.was[0], self.read()
        if isinstance(first, weakref.ref) or not isinstance(now, PLAIN):
            return "to another array"
        return f"from {first!r:.40} to {now!r:.40}"


def outer_values(fn: Any, static: Mapping[str, Any]) -> list[OuterValue]:
    """As they are now.

    Args:
        static: arguments by name that are no arrays: their attributes are read as those of an object are.
    """
    found: dict[str, OuterValue] = {}
    for value in _values(fn, static, set()):
        found.setdefault(value.name, value)
    return list(found.values())


def _values(fn: Any, static: Mapping[str, Any], met: set[CodeType]) -> Iterator[OuterValue]:
    while isinstance(fn, partial) or hasattr(fn, "__wrapped__"):
        fn = fn.func if isinstance(fn, partial) else fn.__wrapped__
    owner = fn.__self__ if isinstance(fn, MethodType) else None
    fn = getattr(fn, "__func__", fn)
    if not isinstance(fn, FunctionType) or fn.__code__ in met or owner_of(fn.__code__.co_filename) != "user":
        return
    met.add(fn.__code__)
    roots = _roots(fn, owner, static)
    for chain, line in _chains(fn):
        root = roots.get(chain[0]) or _global(fn, chain[0])
        if root is None:
            continue
        depth, value = _follow(root(), chain)
        if (kept := _keep(value)) is not None:
            read = partial(_read, root, chain[: depth + 1])
            yield OuterValue(".".join(chain[: depth + 1]), f"{fn.__code__.co_filename}:{line}", read, kept)
        elif isinstance(value, FunctionType | MethodType | partial) or hasattr(value, "lower"):
            yield from _values(value, {}, met)


def _roots(fn: FunctionType, owner: Any, static: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Returns ways to reach the values behind names, without keeping them alive."""
    code, function = fn.__code__, weakref.ref(fn)
    roots: dict[str, Callable[[], Any]] = {name: partial(_cell, function, i) for i, name in enumerate(code.co_freevars)}
    objects = dict(static)
    if owner is not None and code.co_varnames:
        objects[code.co_varnames[0]] = owner
    for name, value in objects.items():
        if hasattr(type(value), "__weakref__"):
            roots[name] = partial(_alive, weakref.ref(value))
    return roots


def _alive(reference: weakref.ref[Any]) -> Any:
    value = reference()
    return MISSING if value is None else value


def _cell(function: weakref.ref[FunctionType], i: int) -> Any:
    fn = function()
    try:
        return MISSING if fn is None or fn.__closure__ is None else fn.__closure__[i].cell_contents
    except ValueError:  # not set
        return MISSING


def _global(fn: FunctionType, name: str) -> Callable[[], Any] | None:
    if name in fn.__code__.co_varnames or name in fn.__code__.co_cellvars or name not in fn.__globals__:
        return None
    return partial(fn.__globals__.get, name, MISSING)


def _follow(value: Any, chain: tuple[str, ...]) -> tuple[int, Any]:
    """How far along the attributes there are values to go on with, and the last one."""
    for depth, name in enumerate(chain[1:]):
        if _keep(value) is not None or value is MISSING:
            return depth, value
        if isinstance(value, ModuleType) and owner_of(getattr(value, "__file__", None) or "<") != "user":
            return depth, MISSING
        value = _attribute(value, name)
    return len(chain) - 1, value


def _read(root: Callable[[], Any], chain: tuple[str, ...]) -> Any:
    return _follow(root(), chain)[1]


def _attribute(value: Any, name: str) -> Any:
    """Returns an attribute of the value or of its class, but nothing that would be computed."""
    own = getattr(value, "__dict__", {})
    found = own[name] if name in own else inspect.getattr_static(value, name, MISSING)
    if isinstance(found, FunctionType) and name not in own:
        return MethodType(found, value)
    return found if name in own or isinstance(found, PLAIN) else MISSING


def _keep(value: Any) -> tuple[Any, ...] | None:
    """Returns a key that shows a change of the value. Returns None for a value that is not a number, text or array, nor
    made of them."""
    if isinstance(value, PLAIN):
        return (value,)
    leaves = jax.tree.leaves(value) if isinstance(value, dict | list | tuple) else [value]
    if not 0 < len(leaves) <= MOST_LEAVES or any(isinstance(leaf, Tracer) for leaf in leaves):
        return None
    if all(isinstance(leaf, (jax.Array, np.ndarray, *PLAIN)) for leaf in leaves):
        return tuple(leaf if isinstance(leaf, PLAIN) else weakref.ref(leaf) for leaf in leaves)
    return None


def _is_same(was: tuple[Any, ...], now: tuple[Any, ...] | None) -> bool:
    if now is None or len(was) != len(now):
        return False
    # Of one array there is one weak reference.
    return all(
        a is b or (isinstance(a, PLAIN) and type(a) is type(b) and a == b) for a, b in zip(was, now, strict=True)
    )


_known: dict[CodeType, list[tuple[tuple[str, ...], int]]] = {}


def _chains(fn: FunctionType) -> list[tuple[tuple[str, ...], int]]:
    """((self, temperature), line) of each name that is read and not made inside. A file is parsed once for each
    function."""
    code = fn.__code__
    if code not in _known:
        source = source_of(fn)
        made = {*code.co_varnames[code.co_argcount :], *(_made_inside(source.tree) if source else ())}
        found = _read_in(source.tree) if source else ()
        _known[code] = [(chain, line) for chain, line in found if chain[0] not in made]
    return _known[code]


def _made_inside(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, Function) and node is not tree:
            yield from (arg.arg for arg in ast.walk(node.args) if isinstance(arg, ast.arg))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _read_in(node: ast.AST) -> Iterator[tuple[tuple[str, ...], int]]:
    path = path_of(node) if isinstance(getattr(node, "ctx", None), ast.Load) else ""
    if path:
        yield tuple(path.split(".")), getattr(node, "lineno", 0)
        return
    # What is handed to a callback runs in each call, and reads what is there then.
    is_callback = isinstance(node, ast.Call) and "callback" in callee_name(node)
    for child in () if is_callback else ast.iter_child_nodes(node):
        yield from _read_in(child)
