"""Arguments that a call changes in place: takes them apart into values, and puts them together again.

Two kinds are known: objects of Flax NNX (modules, optimizers, `Rngs`, variables) and references (`jax.new_ref`). The
measured function is then a function of its values and its state, and the new state is one of its outputs. Every call
starts from the same values, on its own objects. A measured call never gets the user's objects.

Only public functions of NNX are used (`nnx.split`, `nnx.merge`, `nnx.iter_graph`; tried with flax 0.12.8), and only if
the user has imported it. All objects of a call are one graph: a model inside an optimizer stays the same model.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import jax
import numpy as np

from benchax.errors import NotMeasured, UsageError
from benchax.program.index import TracedProgram, Value, index
from benchax.program.jaxpr import every_equation, nested_in
from benchax.source_files import is_library
from benchax.static_leaves import data_of, is_nnx_object
from benchax.wrappers import layers

Values = dict[str, Any]
"""The values of mutable arguments, by a name such as `model.bn.mean`."""


@partial(jax.tree_util.register_dataclass, data_fields=["outputs", "state"], meta_fields=[])
@dataclass(frozen=True)
class CallOutcome:
    """All that a call of a stateful function gives: what it returns, and what it has changed."""

    outputs: Any
    state: Values


@dataclass(frozen=True)
class Parts:
    """The values inside a call's arguments, and how to make arguments of such values again."""

    leaves: list[Any]
    """As `jax.tree.leaves` gives them; what mutable objects hold comes last."""
    names: dict[int, str]
    """The names of the leaves that a call can change, by their place in `leaves`."""
    merge: Callable[[Sequence[Any]], Any] = field(repr=False)
    """Arguments of these values, on new objects."""

    @property
    def values(self) -> Values:
        return {name: self.leaves[i] for i, name in self.names.items()}


def is_stateful(tree: Any) -> bool:
    """Is there anything in it that a call can change?"""
    return any(is_nnx_object(leaf) or is_ref(leaf) for leaf in jax.tree.leaves(tree, is_leaf=is_nnx_object))


def holds_objects(tree: Any) -> bool:
    """Are there objects of Flax NNX in it?"""
    return any(map(is_nnx_object, jax.tree.leaves(tree, is_leaf=is_nnx_object)))


def without_objects(tree: Any) -> Any:
    """`tree` with None for each object of Flax NNX; its leaves are the first of those that `take_apart` gives."""
    return jax.tree.map(lambda leaf: None if is_nnx_object(leaf) else leaf, tree, is_leaf=is_nnx_object)


def take_apart(tree: Any, labels: Sequence[str] = ()) -> Parts:
    """`tree` is a call, `(args, kwargs)`, or anything else; `labels` are names for the positions of `args`."""
    found, structure = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_nnx_object)
    objects = [i for i, (_, leaf) in enumerate(found) if is_nnx_object(leaf)]
    others = [i for i, (_, leaf) in enumerate(found) if not is_nnx_object(leaf)]
    graph, held, held_structure = None, [], None
    if objects:
        graph, state = _nnx().split(tuple(found[i][1] for i in objects))
        held, held_structure = jax.tree_util.tree_flatten_with_path(state)
    where = [label(path, labels) for path, _ in found]
    leaves = [found[i][1] for i in others] + [leaf for _, leaf in held]
    names = {place: where[i] for place, i in enumerate(others) if is_ref(found[i][1])}
    names |= {len(others) + k: _name(where, objects, path) for k, (path, _) in enumerate(held)}
    # Two names of one reference stay one reference: a write through either must be visible through both.
    first: dict[int, int] = {}
    twins = {i: first.setdefault(id(leaf), i) for i, leaf in enumerate(leaves) if is_ref(leaf)}
    count = len(found)

    def merge(values: Sequence[Any]) -> Any:
        new = list(values)
        for place, twin in twins.items():
            new[place] = _new_ref(values[place]) if place == twin else new[twin]
        filled: list[Any] = [None] * count  # of `found` it would hold all arrays
        for place, i in enumerate(others):
            filled[i] = new[place]
        if objects:
            state = jax.tree.unflatten(held_structure, new[len(others) :])
            for i, made in zip(objects, _nnx().merge(graph, state), strict=True):
                filled[i] = made
        return jax.tree.unflatten(structure, filled)

    return Parts([leaf[...] if is_ref(leaf) else leaf for leaf in leaves], names, merge)


def watch(tree: Any, names: Sequence[str], labels: Sequence[str] = ()) -> Callable[[], list[Any]]:
    """A quick way to the arrays that `names` of NNX objects hold from now on: what to wait for after a call.

    References are left out: nothing of theirs can be waited for but a copy.
    """
    found, _ = jax.tree_util.tree_flatten_with_path(tree, is_leaf=is_nnx_object)
    objects = [i for i, (_, leaf) in enumerate(found) if is_nnx_object(leaf)]
    if not objects or not names:
        return list
    where = [label(path, labels) for path, _ in found]
    variables = {
        _name(where, objects, path): value
        for path, value in _nnx().iter_graph(tuple(found[i][1] for i in objects))
        if isinstance(value, _nnx().Variable)
    }
    if any(name not in variables for name in names):  # arrays without a variable around them, or made by the call
        return lambda: [leaf for leaf in take_apart(tree).leaves if isinstance(leaf, jax.Array)]
    # `get_raw_value` since flax 0.12; `raw_value` before.
    readers = [
        getattr(variables[name], "get_raw_value", partial(getattr, variables[name], "raw_value")) for name in names
    ]
    return lambda: [value for read in readers if not is_ref(value := read())]


def is_same(one: Any, other: Any) -> bool:
    """Do two values hold the same numbers?"""
    if one is other:
        return True
    one, other = data_of(one), data_of(other)
    return np.array_equal(one, other, equal_nan=jax.numpy.issubdtype(jax.numpy.result_type(one), np.inexact))


def is_ref(leaf: Any) -> bool:
    """Is it a reference, or a tracer of one? `jax.Ref` is public since jax 0.8; before, its type tells."""
    kind = getattr(jax, "Ref", None)
    return hasattr(getattr(leaf, "aval", None), "inner_aval") if kind is None else isinstance(leaf, kind)


def _new_ref(value: Any) -> Any:
    """`jax.new_ref` since jax 0.8; in `jax.experimental` before, by another name."""
    make = getattr(jax, "new_ref", None) or getattr(importlib.import_module("jax.experimental"), "mutable_array", None)
    if make is None:
        raise NotMeasured(f"jax {jax.__version__} has no public way to make the references that it is given")
    return make(value)


def _nnx() -> Any:
    """None if the user has not imported it, and so cannot have objects of it."""
    return sys.modules.get("flax.nnx")


def label(path: tuple[Any, ...], labels: Sequence[str]) -> str:
    """Returns the name of an argument: that in the function's signature, else its position; and where in it."""
    if len(path) < 2:
        return jax.tree_util.keystr(path)
    (part, which), rest = map(_step, path[:2]), jax.tree_util.keystr(path[2:])
    if part != "0" or not which.isdecimal():  # of the named arguments, or of something that is no call
        return f"{which}{rest}"
    return f"{labels[int(which)] if int(which) < len(labels) else f'args[{which}]'}{rest}"


def _name(where: Sequence[str], objects: Sequence[int], path: Sequence[Any]) -> str:
    """The first step says which object, the last may say that it is the value of a variable."""
    which, *steps = map(_step, path)
    if steps and steps[-1] in ("value", "raw_value"):
        steps.pop()
    return ".".join([where[objects[int(which)]], *steps])


def _step(key: Any) -> str:
    return jax.tree_util.keystr((key,), simple=True)


# ---- values that a call changes --------------------------------------------------------------------------------------
#
# Finds the values that a function changes in place: mutable arguments, and other objects that it reaches.
#
# For arguments, the jaxpr shows it: it passes unchanged values through. Unchanged values must not be outputs of the
# timed program. Otherwise a model's weights would be copied in every repetition of its forward pass, and the copies
# would count as its work.
#
# Other objects are, for example, a model that it closes over, or a reference in a global. Calls that change them do not
# start from the same state, and no program around the function has the change as an output. So benchax restores them
# and refuses the function, with their names. Objects that are only read stay as they are.


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

State = Mapping[str, tuple[str, Any, Any]]
"""By name: the fingerprint of a value."""


def state_of(fn: Callable[..., Any]) -> State:
    """As it is now."""
    return {name: _fingerprint(value) for name, value in values_of(fn).items()}


def values_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """By name: the objects themselves."""
    return {name: value for name, value, _ in _reached(fn, set())}


def changes(before: State, after: State) -> dict[str, str]:
    """Describes the changes, by name."""
    return {name: _change(before.get(name), now) for name, now in after.items() if before.get(name) != now}


def _change(before: tuple[str, Any, Any] | None, now: tuple[str, Any, Any]) -> str:
    if before is None:
        return "was set"
    what = {("value", "value"): "", ("members", "members"): " members"}.get((before[0], now[0]))
    return "has other contents" if what is None or before[1] == now[1] else f"went from {before[1]} to {now[1]}{what}"


def _reached(fn: Any, met: set[int]) -> Iterator[tuple[str, Any, Callable[[Any], None]]]:
    """(name, value, how to bind the name to another value)"""
    *outer, fn = layers(fn)
    for one in outer:
        if isinstance(one, partial):
            arguments = (*enumerate(one.args), *one.keywords.items())
            yield from ((f"argument {name} of the partial", value, _leave) for name, value in arguments)
        if isinstance(one, MethodType):
            yield "self", one.__self__, _leave
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
        name: (value, partial(fn.__globals__.__setitem__, name))
        for name, value in fn.__globals__.items()
        if name in names
    }
    for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            found[name] = cell.cell_contents, partial(setattr, cell, "cell_contents")
    for name, (value, put) in found.items():
        is_jitted = hasattr(value, "lower") and not isinstance(value, str | bytes | bytearray)
        if is_jitted or isinstance(value, FunctionType | partial | MethodType):
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


def _fingerprint(value: Any, depth: int = DEPTH) -> tuple[str, Any, Any]:
    """(kind, what to say of it, all that counts)"""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return "value", repr(value)[:40], (type(value), repr(value))
    if isinstance(value, np.ndarray) and value.nbytes <= LARGE_BYTES and not value.dtype.hasobject:
        return "array", id(value), (value.shape, str(value.dtype), value.tobytes())
    if depth and isinstance(value, dict):
        listed = list(value.items())[:MEMBERS]
        return "members", len(value), (id(value), [(_fingerprint(k, 0), _fingerprint(v, depth - 1)) for k, v in listed])
    if depth and isinstance(value, list | tuple | set | frozenset):
        return "members", len(value), (id(value), [_fingerprint(v, depth - 1) for v in list(value)[:MEMBERS]])
    own = getattr(value, "__dict__", None)
    return "object", id(value), _fingerprint(own, depth) if depth and isinstance(own, dict) else None


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
    # Judge by the jaxpr and not by the values, which can be equal by chance.
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


class Surroundings:
    """The values that `fn` reaches besides its arguments, as they are when this is made."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        reached = list(_reached(fn, set()))
        self._kept = [(v, put, v.copy() if type(v) in (list, dict, set) else None) for _, v, put in reached]
        values = {name: value for name, value, _ in reached} | ({"self": fn} if holds_objects(fn) else {})
        self._tree = (), {name: value for name, value in values.items() if _is_stateful(value)}
        self._before = take_apart(self._tree)

    def put_back(self) -> None:
        """Binds names again, and restores the members of lists, dicts and sets."""
        for value, bind, members in self._kept:
            bind(value)
            if members is not None:
                value.clear()
                (value.extend if isinstance(value, list) else value.update)(members)

    def check(self, name: str) -> None:
        """Raises `UsageError` if a call has changed an object of Flax NNX or a reference, after putting it back.

        Args:
            name: of the function.
        """
        if not self._tree[1]:
            return
        before, now = self._before.values, take_apart(self._tree).values
        changed = [each for each in now if each not in before or not is_same(now[each], before[each])]
        if not changed:
            return
        found, old = (
            jax.tree.leaves(tree, is_leaf=is_nnx_object)
            for tree in (self._tree, self._before.merge(self._before.leaves))
        )
        for mine, its in zip(found, old, strict=True):
            if is_nnx_object(mine):
                _nnx().update(mine, _nnx().state(its))
            elif is_ref(mine):
                mine[...] = its[...]
        raise UsageError(
            f"{name} changes {changed[0]!r} in place, which it is not given as an argument: no two calls start from "
            "the same values",
            "a function that is given what it changes",
            f"pass {changed[0].partition('.')[0]!r} as an argument; what a call changes in its arguments is put back "
            "for each call, and timed",
        )


def _is_stateful(value: Any) -> bool:
    try:
        return is_stateful(value)
    except (TypeError, ValueError):  # a container that is no tree, such as a dict of unlike keys
        return False
