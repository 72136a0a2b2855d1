"""Finds the values that a function changes in place: mutable arguments, and other objects that it reaches.

For arguments, the jaxpr shows it: it passes unchanged values through. Unchanged values must not be outputs of the timed
program. Otherwise a model's weights would be copied in every repetition of its forward pass, and the copies would count
as its work.

Other objects are, for example, a model that it closes over, or a reference in a global. Calls that change them do not
start from the same state, and no program around the function has the change as an output. So benchax restores them and
refuses the function, with their names. Objects that are only read stay as they are.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from benchax.errors import UsageError
from benchax.measuring import state
from benchax.measuring.state import Parts, Values
from benchax.program.index import TracedProgram, Value, index
from benchax.program.jaxpr import every_equation, nested_in
from benchax.source_files import is_library

# ---- surroundings ----------------------------------------------------------------------------------------------------
#
# Finds the values that a function can reach besides its arguments, and whether they have changed. They are the globals
# that it names, its closure, and its object. The same values of the user's functions that it calls by name count, too.
#
# Values are compared by a fingerprint: numbers and texts by value, containers by their members three levels deep, small
# arrays by their bytes, all else by identity. A change that this cannot see (a file, a library's own state) is not
# reported.


DEPTH, MEMBERS = 3, 200
"""How far containers are looked into."""
LARGE_BYTES = 1 << 20
"""The most bytes of an array; larger ones count by identity."""

State = Mapping[str, tuple[str, int | None, Any]]
"""By name: (the value in short, its length, its fingerprint)."""


def state_of(fn: Callable[..., Any]) -> State:
    """As it is now."""
    return {name: (_short(value), _length(value), _fingerprint(value)) for name, value, _ in _reached(fn, set())}


def values_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """By name: the objects themselves."""
    return {name: value for name, value, _ in _reached(fn, set())}


def remember(fn: Callable[..., Any]) -> Callable[[], None]:
    """Returns a function that restores all that `fn` reaches now: names that are bound again, and members of lists,
    dicts and sets.
    """
    kept = [(value, put, _members(value)) for _, value, put in _reached(fn, set())]

    def put_back() -> None:
        for value, put, members in kept:
            put(value)
            if members is not None:
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(members)

    return put_back


def _members(value: Any) -> Any:
    return value.copy() if type(value) in (list, dict, set) else None


def changes(before: State, after: State) -> dict[str, str]:
    """Describes the changes, by name."""
    return {
        name: _change(before.get(name), after[name])
        for name in after
        if name not in before or before[name][2] != after[name][2]
    }


def _change(before: tuple[str, int | None, Any] | None, after: tuple[str, int | None, Any]) -> str:
    if before is None:
        return "was set"
    if before[1] is not None and after[1] is not None and before[1] != after[1]:
        return f"went from {before[1]} to {after[1]} members"
    return f"went from {before[0]} to {after[0]}" if before[0] != after[0] else "has other contents"


def _reached(fn: Any, met: set[int]) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """(name, value, how to bind the name to another value)"""
    while isinstance(fn, functools.partial):
        for name, value in (*enumerate(fn.args), *fn.keywords.items()):
            yield f"argument {name} of the partial", value, _leave
        fn = fn.func
    if isinstance(fn, MethodType):
        yield "self", fn.__self__, _leave
        fn = fn.__func__
    fn = inspect.unwrap(fn) if callable(fn) else fn
    if not isinstance(fn, FunctionType):
        call = type(fn).__dict__.get("__call__")
        if isinstance(call, FunctionType) and not is_library(call.__code__.co_filename):
            yield from _reached(MethodType(call, fn), met)
        return
    if id(fn) in met or is_library(fn.__code__.co_filename):
        return
    met.add(id(fn))
    names = set(_names(fn.__code__))
    found = {
        name: (value, functools.partial(fn.__globals__.__setitem__, name))
        for name, value in fn.__globals__.items()
        if name in names
    }
    cells = zip(fn.__code__.co_freevars, fn.__closure__ or (), _cells(fn), strict=True)
    found |= {
        n: (value, functools.partial(setattr, cell, "cell_contents")) for n, cell, value in cells if value is not _EMPTY
    }
    for name, (value, put) in found.items():
        is_jitted = hasattr(value, "lower") and not isinstance(value, str | bytes | bytearray)
        if is_jitted or isinstance(value, FunctionType | functools.partial | MethodType):
            yield from _reached(value, met)
        elif not isinstance(value, ModuleType | type):
            yield name, value, put


def _leave(value: Any) -> None:
    """An object whose method is called stays that object."""


def _names(code: CodeType) -> Iterator[str]:
    """Yields the names that the code uses, also in functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


_EMPTY = object()


def _cells(fn: FunctionType) -> Iterator[Any]:
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not set yet
            yield _EMPTY


def _fingerprint(value: Any, depth: int = DEPTH) -> Any:
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return type(value), repr(value)
    if isinstance(value, np.ndarray) and value.nbytes <= LARGE_BYTES and not value.dtype.hasobject:
        return id(value), value.shape, str(value.dtype), value.tobytes()
    if depth == 0:
        return id(value)
    if isinstance(value, dict):
        listed = list(value.items())[:MEMBERS]
        return id(value), len(value), [(_fingerprint(k, 0), _fingerprint(v, depth - 1)) for k, v in listed]
    if isinstance(value, list | tuple | set | frozenset):
        return id(value), len(value), [_fingerprint(v, depth - 1) for v in list(value)[:MEMBERS]]
    own = getattr(value, "__dict__", None)
    return (id(value), _fingerprint(own, depth)) if isinstance(own, dict) else id(value)


def _short(value: Any) -> str:
    is_plain = value is None or isinstance(value, bool | int | float | complex | str)
    return repr(value)[:40] if is_plain else type(value).__name__


def _length(value: Any) -> int | None:
    return len(value) if isinstance(value, list | dict | set | tuple | frozenset) else None


WRITES = ("swap", "addupdate")
"""Primitives that write to a reference."""
READS = ("get", "freeze")
MAKES = ("new_ref", "ref", "mutable_array")
"""Primitives that make a reference of a value; named differently from jax 0.5 to 0.10."""


def changed_names(after: Callable[[list[Any]], Values], parts: Parts) -> tuple[str, ...]:
    """Returns the names of the values that a call changes, makes or removes.

    Args:
        after: returns the values of the mutable arguments after a call with these values of `carried(parts)`.
    """
    names: list[str] = []

    def flat(*values: Any) -> list[Any]:
        now = after(list(values))
        names[:] = now
        return list(now.values())

    places = carried(parts)
    # By the jaxpr and not by the values, which may be the same by chance.
    program = index(jax.make_jaxpr(flat)(*(parts.leaves[i] for i in places)))
    place = {parts.names[i]: k for k, i in enumerate(places) if i in parts.names}
    given = zip(names, sources(program), strict=True)
    return tuple(name for name, source in given if source is None or source != place.get(name))


def carried(parts: Parts) -> list[int]:
    """The positions of the run-time inputs of a compiled program."""
    return [i for i, leaf in enumerate(parts.leaves) if is_carried(leaf)]


def is_carried(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | int | float | complex)


def sources(program: TracedProgram) -> list[int | None]:
    """Returns, for each output, the place of the input that it is, unchanged; None if it is computed."""

    def source(value: Value) -> int | None:
        while (op := value.maker) is not None:
            is_whole = op.name in READS and len(op.reads) == 1 and not _is_written(op.reads[0])
            if op.name not in MAKES and not is_whole:
                return None
            value = op.reads[0]
        return program.body.position(value)

    return [source(value) for value in program.outputs]


def _is_written(reference: Value) -> bool:
    """Does anything write to it? A loop or branch that writes to any reference can write to each that it is given."""
    writes = [op for op in reference.readers if op.name in WRITES and op.reads[0] is reference]
    inside = (nested for op in reference.readers for nested in nested_in(op.equation))
    return bool(writes) or any(each.primitive.name in WRITES for one in inside for each in every_equation(one))


class ClosedOver:
    """The objects that `fn` reaches, in their state when this is made."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        reached = values_of(fn)
        if state.holds_objects(fn):
            reached["self"] = fn
        self._tree = (), {name: value for name, value in reached.items() if _is_stateful(value)}
        self._before = self._now()

    def check(self, name: str) -> None:
        """Raises `UsageError` if a call has changed something, after putting it back.

        Args:
            name: of the function.
        """
        if not self._tree[1]:
            return
        before, now = self._before.values, self._now().values
        changed = [each for each in now if each not in before or not state.is_same(now[each], before[each])]
        if not changed:
            return
        state.put_back(self._tree, self._before)
        raise UsageError(
            f"{name} changes {changed[0]!r} in place, which it is not given as an argument: no two calls start from "
            "the same values",
            "a function that is given what it changes",
            f"pass {changed[0].partition('.')[0]!r} as an argument; what a call changes in its arguments is put back "
            "for each call, and timed",
        )

    def _now(self) -> Parts:
        return state.take_apart(self._tree)


def _is_stateful(value: Any) -> bool:
    try:
        return state.is_stateful(value)
    except (TypeError, ValueError):  # a container that is no tree, such as a dict of unlike keys
        return False
